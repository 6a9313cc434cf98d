// Requests one turn of speech and writes it to a file as it arrives: an example, and the client of the tests.
//
// HOST may be https://HOST. SSL_CERT_FILE in the environment names the authorities to trust in place of the system's.
//
//     g++ -std=c++17 -O2 speak.cpp -lcurl -o speak && ./speak HOST PORT OUT.pcm '{"stream": true, "messages": [...]}'
//
// With -DOMNIWATCH_OPUS -lopus it asks for Opus, a twelfth of the bytes; OUT.pcm is PCM all the same.
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "omniwatch.hpp"

namespace {

struct Recorder : omniwatch::TurnCallbacks {
  explicit Recorder(const std::string& path) : out(path, std::ios::binary) {}
  void audio(uint32_t, const std::string& pcm, double) override { out << pcm; }
  void lost(uint32_t from_id, uint32_t count) override {
    std::cerr << "lost " << count << " frames from " << from_id << " on\n";
    for (uint32_t i = 0; i < count; i++) out << silence;
  }
  void format(int rate, int channels) override {
    silence.assign(static_cast<size_t>(rate) * static_cast<size_t>(channels) * 2 * 80 / 1000, '\0');
  }
  void text(const std::string& utf8) override { std::cout << utf8; }
  void resumed(const std::string& result, double outage_s, double answer_s, double late_s) override {
    std::cerr << "resumed (" << (result.empty() ? "by itself" : result) << ") after " << outage_s << " s, answered in "
              << answer_s << " s, " << late_s << " s late\n";
  }
  std::ofstream out;
  std::string silence;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: speak HOST PORT OUT.pcm CHAT.json\n";
    return 2;
  }
  Recorder recorder(argv[3]);
  const char* ca_file = std::getenv("SSL_CERT_FILE");
  omniwatch::Client client(argv[1], static_cast<uint16_t>(std::atoi(argv[2])), recorder, {}, "", ca_file ? ca_file : "");
  const std::string reason = client.speak(argv[4]);
  std::cout << std::endl;
  std::cerr << reason << (client.error().empty() ? "" : ": " + client.error()) << "\n";
  return reason == "done" ? 0 : 1;
}
