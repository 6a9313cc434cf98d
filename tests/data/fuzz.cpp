// Receives turns of a broken or hostile server; prints how many ended for which reason. Built with sanitizers: a finding of
// theirs, and a turn without an end, is a failure.
//
//     fuzz < CONVERSATIONS      a session in virtual time; each conversation is uint32 seed, uint32 count, then count times
//                               uint32 size and that many bytes
//     fuzz URL TURNS [CA.pem]   a client with little patience, over sockets
#include <iostream>
#include <limits>

#include "omniwatch.hpp"

namespace {

using omniwatch::Decoder;
using omniwatch::ResponseParser;
using omniwatch::Session;

// One turn: an answer for each connection, in pieces of random sizes; a connection beyond them is refused.
struct Turn : omniwatch::TurnCallbacks, omniwatch::SessionHandler {
  struct Connection {
    std::string data;
    size_t at = 0;
    bool opened = false, asked = false, ends = false;
    ResponseParser response;
    Decoder decoder;
  };

  Turn(uint32_t seed, std::vector<std::string> answers)
      : random(seed), answers_(std::move(answers)), session(*this, *this, config(), [this] { return luck(); }) {}

  static omniwatch::Config config() {
    omniwatch::Config config;
    config.give_up_s = 3;
    return config;
  }
  double luck() { return std::uniform_real_distribution<double>(0, 1)(random); }

  void open(int conn) override { connections[conn].ends = luck() < 0.5; }
  void ask(int conn, const std::string& resume) override {
    if (resume.find_first_of("\r\n") != std::string::npos) throw std::logic_error("a request with a line feed");
    if (next_ < answers_.size()) connections[conn].data = answers_[next_++];
    connections[conn].asked = true;
  }
  void drop(int conn) override { dead.push_back(conn); }
  void rtx(uint32_t from_id, uint32_t count) override {
    if (count == 0 || count > 1000000) throw std::logic_error("an odd number of frames");
    asked_again.push_back(from_id);
  }
  void report_realign(double shift_ms) override { bytes += omniwatch::thousandths(shift_ms).size(); }
  void ended(const std::string& why) override { reason = why; }
  void format(int rate, int channels) override {
    if (rate < 1 || channels < 1) throw std::logic_error("odd sound");
    bytes += static_cast<size_t>(rate) * static_cast<size_t>(channels) * 2 * 80 / 1000;
    // The made-up servers send PCM of other rates: at this one, speech is Opus.
    opus = rate == 24000 ? static_cast<size_t>(std::llround(rate * session.buffer.frame_s)) * 2 : 0;
  }
  void audio(uint32_t, const std::string& pcm, double play_at) override {
    if (!std::isfinite(play_at)) throw std::logic_error("a frame that never plays");
    if (opus && pcm.size() != opus) throw std::logic_error("a packet that is no frame");
    decoded += opus != 0;
    bytes += pcm.size();
    session.picture(now, now * 1000 * luck() * 2);
  }
  void text(const std::string& utf8) override { bytes += utf8.size(); }
  void event(const std::string& json) override { bytes += json.size(); }
  void lost(uint32_t, uint32_t count) override {
    if (count > 45000) throw std::logic_error("more lost than an hour");
  }

  // What Client::receive does with bytes; false at the end of the connection.
  bool receive(int number, Connection& connection) {
    const size_t size = static_cast<size_t>(luck() * 3000) + 1;
    const std::string data = connection.data.substr(connection.at, size);
    connection.at += data.size();
    if (data.empty()) return !connection.ends;
    try {
      const bool had_head = connection.response.status != 0;
      const std::string body = connection.response.feed(data);
      const int status = connection.response.status;
      if (!status) return true;
      if (!had_head) session.head(now, number, status, connection.response.headers);
      if (status == 200 || status == 206) session.data(now, number, connection.decoder.feed(body));
      return !connection.response.done;
    } catch (const std::runtime_error&) {
      return false;
    }
  }
  void step() {
    for (const uint32_t from_id : std::exchange(asked_again, {})) {
      if (luck() < 0.5) session.refused(now, from_id);
    }
    std::vector<int> numbers;
    for (const auto& [number, connection] : connections) numbers.push_back(number);
    for (const int number : numbers) {
      if (std::find(dead.begin(), dead.end(), number) != dead.end()) continue;
      Connection& connection = connections.at(number);
      if (!connection.opened) {
        connection.opened = true;
        if (next_ < answers_.size()) {
          session.opened(now, number);
        } else {
          session.closed(now, number);
          dead.push_back(number);
        }
      } else if (connection.asked && !receive(number, connection)) {
        session.closed(now, number);
        dead.push_back(number);
      }
    }
    for (const int number : std::exchange(dead, {})) connections.erase(number);
  }
  void report() {
    if (!session.report.due_at || luck() < 0.5) return;
    if (session.report.body(now).find_first_of("\r\n") != std::string::npos) throw std::logic_error("a report with a line feed");
    constexpr int statuses[] = {204, 204, 204, 0, 409, 404};
    session.report.answered(now, statuses[static_cast<size_t>(luck() * 6)]);
  }
  std::string run() {
    session.start(now, luck() < 0.3);
    for (int steps = 0; !session.over(); steps++) {
      if (steps > 200000) throw std::logic_error("a turn without an end");
      step();
      report();
      now = luck() < 0.9 ? now + 0.001 * luck() : std::max(now, session.wake_at().value_or(now));
      session.tick(now);
    }
    return reason;
  }

  std::mt19937 random;
  std::vector<std::string> answers_;
  size_t next_ = 0;
  std::map<int, Connection> connections;
  std::vector<int> dead;
  std::vector<uint32_t> asked_again;
  std::string reason;
  double now = 0;
  size_t bytes = 0;
  size_t opus = 0, decoded = 0;  // bytes of a frame that was Opus, and how many of them were heard
  Session session;
};

bool read(uint32_t& value) { return static_cast<bool>(std::cin.read(reinterpret_cast<char*>(&value), sizeof value)); }

struct Listener : omniwatch::TurnCallbacks {
  void audio(uint32_t, const std::string&, double) override { client->picture(omniwatch::Client::now() * 2000); }
  omniwatch::Client* client = nullptr;
};

void run_over_sockets(const char* url, int turns, const char* ca_file, std::map<std::string, int>& reasons) {
  omniwatch::Config config;
  config.silence_s = config.hurry_s = config.answer_s = config.backoff_s = 0.1;
  config.give_up_s = 0.4;
  for (int i = 0; i < turns; i++) {
    Listener listener;
    omniwatch::Client client(url, listener, config, "", ca_file);
    listener.client = &client;
    for (int turn = 0; turn < 2; turn++) {
      const double until = omniwatch::Client::now() + 5;
      reasons[client.speak("{\"stream\": true}", [until] { return omniwatch::Client::now() < until; })]++;
      for (const double rest = omniwatch::Client::now() + 0.05; omniwatch::Client::now() < rest;) client.tend();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  std::map<std::string, int> reasons;
  size_t decoded = 0;
  if (argc > 2) run_over_sockets(argv[1], std::atoi(argv[2]), argc > 3 ? argv[3] : "", reasons);
  for (uint32_t seed = 0, count = 0, size = 0; argc < 2 && read(seed) && read(count);) {
    std::vector<std::string> answers;
    for (uint32_t i = 0; i < count && read(size); i++) {
      answers.emplace_back(size, '\0');
      std::cin.read(answers.back().data(), size);
    }
    try {
      Turn turn(seed, std::move(answers));
      reasons[turn.run()]++;
      decoded += turn.decoded;
    } catch (const std::exception& error) {
      std::cerr << "seed " << seed << ": " << error.what() << "\n";
      return 1;
    }
  }
  for (const auto& [reason, turns] : reasons) std::cout << turns << " " << reason << "\n";
  std::cerr << decoded << " frames of Opus\n";
}
