// Hears one turn from a name of two addresses, 127.0.0.2 and 127.0.0.1, and prints how it ended, how often the name was
// asked for and how many frames were heard: two_addresses PORT CHAT.json
#include <arpa/inet.h>

#include <iostream>

#include "omniwatch.hpp"

namespace {

int asked = 0;

struct Counter : omniwatch::TurnCallbacks {
  void audio(uint32_t, const std::string&, double) override { frames++; }
  int frames = 0;
};

}  // namespace

// In place of the system's: no name server of this machine has such a name.
extern "C" int getaddrinfo(const char*, const char* port, const addrinfo*, addrinfo** found) {
  static sockaddr_in at[2];
  static addrinfo list[2];
  asked++;
  for (int i = 0; i < 2; i++) {
    at[i] = {};
    at[i].sin_family = AF_INET;
    at[i].sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
    ::inet_pton(AF_INET, i == 0 ? "127.0.0.2" : "127.0.0.1", &at[i].sin_addr);
    list[i] = {};
    list[i].ai_family = AF_INET;
    list[i].ai_socktype = SOCK_STREAM;
    list[i].ai_addr = reinterpret_cast<sockaddr*>(&at[i]);
    list[i].ai_addrlen = sizeof at[i];
  }
  list[0].ai_next = &list[1];
  *found = list;
  return 0;
}
extern "C" void freeaddrinfo(addrinfo*) noexcept {}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Counter counter;
  omniwatch::Config config;
  config.give_up_s = 10;
  omniwatch::Client client("two.example", static_cast<uint16_t>(std::atoi(argv[1])), counter, config);
  const std::string reason = client.speak(argv[2]);
  std::cout << reason << " " << asked << " " << counter.frames << "\n";
}
