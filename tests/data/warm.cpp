// Has turns with one client and pauses between them; prints for each how it ended, and how long its first speech took in ms:
// warm URL PAUSE_S[,PAUSE_S ...] WARM_S [moved]
// With "moved", the kernel would send from another address than before once the first turn is over.
#include <sys/syscall.h>

#include <chrono>
#include <iostream>
#include <sstream>
#include <thread>

#include "omniwatch.hpp"

namespace {

struct Ear : omniwatch::TurnCallbacks {
  void audio(uint32_t, const std::string&, double) override {
    if (first_at == 0) first_at = omniwatch::Client::now();
  }
  double first_at = 0;
};

bool moved = false;

}  // namespace

// In place of the system's: what would be sent now would have another source address.
extern "C" int getsockname(int fd, sockaddr* of, socklen_t* size) noexcept {
  const long result = ::syscall(SYS_getsockname, fd, of, size);
  int kind = 0;
  socklen_t kind_size = sizeof kind;
  if (moved && ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &kind_size) == 0 && kind == SOCK_DGRAM) {
    reinterpret_cast<sockaddr_in*>(of)->sin_addr.s_addr ^= 0x02000000;
    moved = false;
  }
  return static_cast<int>(result);
}

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  Ear ear;
  omniwatch::Config config;
  config.warm_s = std::atof(argv[3]);
  omniwatch::Client client(argv[1], ear, config);
  std::istringstream pauses(argv[2]);
  std::string pause;
  do {
    const double until = pause.empty() ? 0 : omniwatch::Client::now() + std::atof(pause.c_str());
    while (omniwatch::Client::now() < until) {
      client.tend();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ear.first_at = 0;
    const double asked_at = omniwatch::Client::now();
    const std::string reason = client.speak("{\"stream\": true, \"modalities\": [\"audio\"], \"messages\": []}");
    moved = argc == 5 && pause.empty();
    std::cout << reason << " " << (ear.first_at ? (ear.first_at - asked_at) * 1000 : -1) << std::endl;
  } while (std::getline(pauses, pause, ','));
}
