// Runs scripts of a session's inputs (one a line on standard input) and prints what comes out: for the tests of the client.
//
//     reset | config handshake_rtts N | config NAME VALUE | jitter X | start T [warm] | opened T CONN | head T CONN STATUS NAME=VALUE ... | data T CONN HEX
//     closed T CONN | untrusted T CONN | again T HEX | refused T ID | picture T PTS | tick T | counts
//     report T | reported T STATUS
//     answer HEX (of an HTTP response, byte by byte)
#include <clocale>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "omniwatch.hpp"

namespace {

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string hex(const std::string& bytes) {
  static const char* digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char c : bytes) (text += digits[c >> 4]) += digits[c & 15];
  return text;
}

std::string fixed(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(4) << value;
  return text.str() == "-0.0000" ? "0.0000" : text.str();
}

struct Teller : omniwatch::TurnCallbacks, omniwatch::SessionHandler {
  void open(int conn) override { std::cout << "open " << conn << "\n"; }
  void ask(int conn, const std::string& resume) override { std::cout << "ask " << conn << " " << resume << "\n"; }
  void drop(int conn) override { std::cout << "drop " << conn << "\n"; }
  void rtx(uint32_t from_id, uint32_t count) override { std::cout << "rtx " << from_id << " " << count << "\n"; }
  void report_realign(double) override {}
  void ended(const std::string& reason) override { std::cout << "ended " << reason << "\n"; }
  void format(int rate, int channels) override { std::cout << "format " << rate << " " << channels << "\n"; }
  void audio(uint32_t id, const std::string& pcm, double play_at) override {
    std::cout << "audio " << id << " " << hex(pcm) << " " << fixed(play_at) << "\n";
  }
  void text(const std::string& utf8) override { std::cout << "text " << hex(utf8) << "\n"; }
  void event(const std::string& json) override { std::cout << "event " << hex(json) << "\n"; }
  void lost(uint32_t from_id, uint32_t count) override { std::cout << "lost " << from_id << " " << count << "\n"; }
  void realign(double shift_ms) override { std::cout << "realign " << fixed(shift_ms) << "\n"; }
  void resumed(const std::string& result, double outage_s, double answer_s, double late_s) override {
    std::cout << "resumed " << (result.empty() ? "-" : result) << " " << fixed(outage_s) << " " << fixed(answer_s) << " "
              << fixed(late_s) << "\n";
  }
};

void set(omniwatch::Config& config, const std::string& name, double value) {
  if (name == "silence_s") config.silence_s = value;
  if (name == "hurry_s") config.hurry_s = value;
  if (name == "client_win") config.client_win = static_cast<int32_t>(value);
  if (name == "cache_win") config.cache_win = static_cast<int32_t>(value);
  if (name == "rtx_thr") config.rtx_thr = static_cast<int32_t>(value);
  if (name == "drift_ms") config.drift_ms = value;
  if (name == "playout_ms") config.playout_ms = value;
  if (name == "give_up_s") config.give_up_s = value;
}

}  // namespace

int main() {
  std::setlocale(LC_ALL, "");
  Teller teller;
  omniwatch::Config config;
  double jitter = 0.5;
  int handshake_rtts = 1;
  std::unique_ptr<omniwatch::Session> session;
  std::map<int, omniwatch::Decoder> decoders;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb, rest;
    double now = 0;
    int conn = 0;
    words >> verb;
    if (verb == "reset") {
      config = {};
      jitter = 0.5;
      handshake_rtts = 1;
      session.reset();
      decoders.clear();
      std::cout << "reset\n";
      continue;
    }
    if (verb == "config") {
      double value = 0;
      words >> rest >> value;
      if (rest == "handshake_rtts") handshake_rtts = static_cast<int>(value);
      set(config, rest, value);
      continue;
    }
    if (verb == "jitter") {
      words >> jitter;
      continue;
    }
    if (verb == "counts") {
      const auto& heard = session->buffer;
      std::cout << "counts " << heard.spoken << " " << heard.duplicates << " " << heard.corrupt << " " << heard.missed
                << " " << heard.recent.size() << "\n";
      continue;
    }
    if (verb == "answer") {
      omniwatch::ResponseParser response;
      std::string body;
      words >> rest;
      try {
        for (const char byte : unhex(rest)) body += response.feed(std::string(1, byte));
      } catch (const std::runtime_error&) {
        std::cout << "answer invalid\n";
        continue;
      }
      std::cout << "answer " << response.status << " " << response.done << " " << hex(body) << "\n";
      continue;
    }
    words >> now;
    if (verb == "start") {
      session = std::make_unique<omniwatch::Session>(teller, teller, config, [&jitter] { return jitter; }, handshake_rtts);
      words >> rest;
      session->start(now, rest == "warm");
    } else if (verb == "report") {
      std::cout << "report " << (session->report.due_at ? session->report.body(now) : "nothing") << "\n";
    } else if (verb == "reported") {
      int status = 0;
      words >> status;
      session->report.answered(now, status);
      std::cout << "due " << (session->report.due_at ? fixed(*session->report.due_at) : "never") << "\n";
    } else if (verb == "tick") {
      session->tick(now);
    } else if (verb == "picture") {
      double pts_ms = 0;
      words >> pts_ms;
      session->picture(now, pts_ms);
    } else if (verb == "again") {
      words >> rest;
      session->again(now, omniwatch::Decoder().feed(unhex(rest)));
    } else if (verb == "refused") {
      uint32_t from_id = 0;
      words >> from_id;
      session->refused(now, from_id);
    } else {
      words >> conn;
      if (verb == "opened") session->opened(now, conn);
      if (verb == "closed") session->closed(now, conn);
      if (verb == "untrusted") session->untrusted(now, conn);
      if (verb == "data") {
        words >> rest;
        session->data(now, conn, decoders[conn].feed(unhex(rest)));
      }
      if (verb == "head") {
        int status = 0;
        omniwatch::Headers headers;
        words >> status;
        while (words >> rest) headers[rest.substr(0, rest.find('='))] = rest.substr(rest.find('=') + 1);
        session->head(now, conn, status, headers);
      }
    }
    const auto wake = session->wake_at();
    std::cout << "wake " << (wake ? fixed(*wake) : "never") << "\n";
  }
}
