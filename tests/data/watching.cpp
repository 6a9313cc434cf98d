// Hears one turn in the locale of its environment, beside a picture that jumps 90 ms ahead once; prints how the turn ended
// and how far the voice was shifted. With a third argument its callbacks throw: watching PORT CHAT.json [deaf]
#include <clocale>
#include <iomanip>
#include <iostream>

#include "omniwatch.hpp"

namespace {

struct Player : omniwatch::TurnCallbacks {
  void audio(uint32_t, const std::string&, double) override {
    frames++;
    if (deaf) throw std::runtime_error("no sound card");
  }
  void realign(double shift_ms) override { shifts.push_back(shift_ms); }
  bool deaf = false;
  int frames = 0;
  std::vector<double> shifts;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::setlocale(LC_ALL, "");
  Player player;
  player.deaf = argc > 3;
  omniwatch::Client client("127.0.0.1", static_cast<uint16_t>(std::atoi(argv[1])), player);
  const auto watch = [&] {
    client.picture(omniwatch::Client::now() * 1000 + (player.frames > 5 ? 90 : 0));
    return true;
  };
  try {
    std::cout << client.speak(argv[2], watch);
  } catch (const std::runtime_error& error) {
    std::cout << "threw " << error.what();
  }
  std::cout << std::fixed << std::setprecision(3);
  for (const double shift_ms : player.shifts) std::cout << " " << shift_ms;
  std::cout << "\n";
}
