// Has turns with one client and a pause after each; prints for each a line (JSON), as tests/suites/path/listening.py does:
// listening URL TURNS PAUSE_S OPUS
#include <chrono>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <thread>

#include "omniwatch.hpp"

namespace {

double realtime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Hearing : omniwatch::TurnCallbacks {
  void audio(uint32_t, const std::string&, double) override {
    arrivals << (arrivals.tellp() > 0 ? "," : "") << std::fixed << std::setprecision(6) << "[" << realtime() << ",80.0]";
  }
  void resumed(const std::string& result, double, double, double late_s) override {
    if (!result.empty()) resumptions << (resumptions.tellp() > 0 ? "," : "") << late_s;
  }
  std::ostringstream arrivals;
  std::ostringstream resumptions;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  Hearing hearing;
  omniwatch::Config config;
  config.opus = std::string(argv[4]) == "1";
  omniwatch::Client client(argv[1], hearing, config);
  for (int turns = std::atoi(argv[2]); turns > 0; turns--) {
    hearing.arrivals.str("");
    hearing.resumptions.str("");
    const double asked_t = realtime();
    const std::string reason = client.speak("{\"stream\": true, \"modalities\": [\"audio\"], \"messages\": []}");
    std::cout << std::fixed << std::setprecision(6) << "{\"asked_t\":" << asked_t << ",\"arrivals\":[" << hearing.arrivals.str()
              << "],\"returns_s\":[" << hearing.resumptions.str() << "],\"error\":\"" << (reason == "done" ? "" : reason)
              << "\"}" << std::endl;
    const double until = omniwatch::Client::now() + std::atof(argv[3]);
    while (omniwatch::Client::now() < until) {
      client.tend();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}
