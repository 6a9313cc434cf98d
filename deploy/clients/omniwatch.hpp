// A client that a lost network does not silence: it comes back and hears the next frame. C++17, POSIX sockets, nothing else.
//
//     struct Player : omniwatch::Ears { void audio(uint32_t id, const std::string& pcm, double play_at) override; };
//     Player player;
//     omniwatch::Client client("orin.local", 8000, player);
//     std::string reason = client.speak(R"({"stream": true, "model": "...", "messages": [...]})");
//
// Frame, Decoder, Playout, Hearing and Session are pure: time, bytes and luck are given, virtual calls come out. They are
// the machines of omniwatch.client (Python), and the same vectors test both. Client gives them sockets and a clock.
// Times are seconds of one monotonic clock; names say where it is milliseconds. Not for several threads.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace omniwatch {

// ---- frames ---------------------------------------------------------------------------------------------------------

enum Kind : uint8_t { SPEECH = 0, TEXT = 1, EVENT = 2, FORMAT = 3, END = 4, IDLE = 5 };

// The 8-byte header, little-endian: uint32 frame_id, uint16 checksum, uint8 expert_mask, uint8 reserved (the Kind; 0 for
// speech). On a byte stream follow uint32 length, uint32 part, the payload. What is no speech is part 1, 2 ... of the last
// frame of speech before it.
struct Frame {
  uint32_t id = 0;
  uint16_t checksum = 0;
  uint8_t expert_mask = 0;
  uint8_t kind = SPEECH;
  uint32_t part = 0;
  std::string payload;
};

constexpr size_t PREFIX = 16;
constexpr uint32_t MAX_PAYLOAD = 1u << 23;

// How many frames `newer` is after `older`, around the end of 32 bits (RFC 1982).
inline int32_t distance(uint32_t older, uint32_t newer) { return static_cast<int32_t>(newer - older); }

// XOR of 16-bit little-endian words; an odd last byte counts as a word of its own.
inline uint16_t checksum(const char* data, size_t size) {
  uint16_t folded = 0;
  for (size_t i = 0; i < size; i++) {
    folded = static_cast<uint16_t>(folded ^ (static_cast<uint8_t>(data[i]) << (i % 2 ? 8 : 0)));
  }
  return folded;
}

// Whether a frame's checksum holds; with `codes`, speech is 16-bit codes and the checksum is of codebooks 0-3.
inline bool verify(const Frame& frame, bool codes = false) {
  size_t size = frame.payload.size();
  if (codes && frame.kind == SPEECH) size = std::min<size_t>(size, 8);
  return checksum(frame.payload.data(), size) == frame.checksum;
}

// Cuts frames out of a byte stream that arrives in pieces. Throws std::runtime_error for what cannot be a frame.
class Decoder {
 public:
  std::vector<Frame> feed(const std::string& data) {
    rest_ += data;
    std::vector<Frame> found;
    size_t at = 0;
    while (rest_.size() - at >= PREFIX) {
      const uint32_t length = u32(at + 8);
      if (length > MAX_PAYLOAD) throw std::runtime_error("a frame of " + std::to_string(length) + " bytes");
      if (rest_.size() - at - PREFIX < length) break;
      Frame frame;
      frame.id = u32(at);
      frame.checksum = static_cast<uint16_t>(u32(at + 4) & 0xFFFF);
      frame.expert_mask = static_cast<uint8_t>(rest_[at + 6]);
      frame.kind = static_cast<uint8_t>(rest_[at + 7]);
      frame.part = u32(at + 12);
      frame.payload = rest_.substr(at + PREFIX, length);
      found.push_back(std::move(frame));
      at += PREFIX + length;
    }
    rest_.erase(0, at);
    return found;
  }

 private:
  uint32_t u32(size_t at) const {
    uint32_t value = 0;
    for (int i = 3; i >= 0; i--) value = value << 8 | static_cast<uint8_t>(rest_[at + static_cast<size_t>(i)]);
    return value;
  }
  std::string rest_;
};

// ---- numbers, words -------------------------------------------------------------------------------------------------
// Without the C library's help: in an application of the user's own language that would write 0,25.

inline std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// A number to its thousandths, as JSON has it.
inline std::string thousandths(double value) {
  const long long whole = std::llround(std::abs(value) * 1000);
  const std::string rest = std::to_string(whole % 1000);
  return (value < 0 && whole ? "-" : "") + std::to_string(whole / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
}

// "0.25", "80", "1e+06"; none for what is no such number.
inline std::optional<double> decimal(const std::string& text) {
  size_t at = 0;
  double value = 0;
  int digits = 0, scale = 0;
  const auto digit = [&] { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  for (; digit(); at++, digits++) value = value * 10 + (text[at] - '0');
  if (!digits || digits > 15) return std::nullopt;
  if (at < text.size() && text[at] == '.') {
    for (at++; digit(); at++, digits++, scale--) value = value * 10 + (text[at] - '0');
  }
  if (digits > 15) return std::nullopt;
  if (at < text.size() && text[at] == 'e') {
    const bool minus = ++at < text.size() && text[at] == '-';
    if (at < text.size() && (minus || text[at] == '+')) at++;
    const size_t from = at;
    int power = 0;
    for (; digit() && at < from + 2; at++) power = power * 10 + (text[at] - '0');
    if (at == from) return std::nullopt;
    scale += minus ? -power : power;
  }
  if (at != text.size()) return std::nullopt;
  return scale < 0 ? value / std::pow(10.0, -scale) : value * std::pow(10.0, scale);
}

// A whole number of 32 bits; none for what is none.
inline std::optional<uint32_t> whole(const std::string& text) {
  uint64_t value = 0;
  if (text.empty() || text.size() > 10) return std::nullopt;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  if (value > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(value);
}

// The value of a name in a flat JSON object, strings without their quotes; enough for what the server says in END and FORMAT.
inline std::string json_value(const std::string& json, const std::string& name) {
  size_t at = json.find("\"" + name + "\"");
  if (at == std::string::npos || (at = json.find(':', at)) == std::string::npos) return "";
  at = json.find_first_not_of(" \t\r\n", at + 1);
  if (at == std::string::npos) return "";
  if (json[at] == '"') return json.substr(at + 1, json.find('"', at + 1) - at - 1);
  return json.substr(at, json.find_first_of(",} \t\r\n", at) - at);
}

// ---- hearing --------------------------------------------------------------------------------------------------------

struct Config {
  double silence_s = 1.0;        // nothing heard for so long, or for four of the server's "still here": the network is lost
  double hurry_s = 0.5;          // the same, or two of them, where there is no more to play than a return takes
  int32_t client_win = 150;      // frames kept: those that wait for one before them, and the newest heard
  int32_t cache_win = 75;        // the most frames asked for at once, where the server does not say how many it holds
  int32_t rtx_thr = 3;           // so many frames missing in a row are asked for again
  double rtx_again_s = 0.3;      // asked for in vain, they are asked for again after so long
  double rtx_patience_s = 1.0;   // after so long they are given up
  double reorder_s = 0.1;        // fewer missing frames are waited for so long, longer while there is something to play
  double drift_ms = 40.0;        // past this, sound is forced back onto the picture
  double playout_ms = 80.0;      // what is held back before the first frame plays
  double backoff_s = 1.0;        // the longest pause between two attempts to come back
  double answer_s = 10.0;        // how long the model server may take to begin its answer
  // Without a way to the server for so long, the turn is given up; if not set, when the server has done so for certain.
  std::optional<double> give_up_s;
};

// What an application hears: override what is of use.
struct Ears {
  virtual ~Ears() = default;
  virtual void format(int /*sample_rate_hz*/, int /*channels*/) {}                              // speech from here on
  virtual void audio(uint32_t /*frame_id*/, const std::string& /*pcm*/, double /*play_at*/) {}  // play 80 ms
  virtual void text(const std::string& /*utf8*/) {}
  virtual void event(const std::string& /*json*/) {}
  virtual void lost(uint32_t /*from_id*/, uint32_t /*count*/) {}  // will not come: conceal 80 ms for each
  virtual void realign(double /*shift_ms*/) {}                    // drop so much (negative), or hold still for so long
  // Something new is heard after an outage: `answer_s` after setting out, `late_s` after the player ran dry.
  virtual void resumed(const std::string& /*result*/, double /*outage_s*/, double /*answer_s*/, double /*late_s*/) {}
};

// What a session wants done beside what is heard. `conn` numbers its connections.
struct Handler {
  virtual ~Handler() = default;
  virtual void open(int conn) = 0;                           // connect, then call opened() or closed()
  virtual void ask(int conn, const std::string& resume) = 0; // POST /v1/resume with this body, or, empty, begin the turn
  virtual void drop(int conn) = 0;                           // close a connection
  virtual void rtx(uint32_t from_id, uint32_t count) = 0;    // POST /v1/rtx, then call again() or refused()
  virtual void report_realign(double shift_ms) = 0;          // POST /v1/realign
  virtual void ended(const std::string& reason) = 0;         // "done", or why not
};

// A player that holds back `buffer_s` before its first frame and stands still while it has nothing to play.
class Playout {
 public:
  explicit Playout(double buffer_s) : buffer_s_(buffer_s) {}
  std::optional<double> dry_at;  // when all that is there will have been played; none before the first frame

  double add(double now, double seconds) {
    if (!dry_at) {
      dry_at = began_at_ = now + buffer_s_;
      if (picture_) base_ms_ = picture_->second + (began_at_ - picture_->first) * 1000;
    }
    const double play_at = std::max(now, *dry_at);
    dry_at = play_at + seconds;
    added_s_ += seconds;
    return play_at;
  }
  // How far the voice leads the picture, which is at `pts_ms` now; none while there is no voice.
  std::optional<double> drift_ms(double now, double pts_ms) {
    picture_ = {now, pts_ms};
    if (!dry_at || now < began_at_) return std::nullopt;
    if (!base_ms_) base_ms_ = pts_ms - (now - began_at_) * 1000;
    return (added_s_ - std::max(0.0, *dry_at - now)) * 1000 - (pts_ms - *base_ms_);
  }
  // Take away as much of a drift as can be; return the milliseconds dropped (negative) or held still.
  double shift(double now, double drift_ms) {
    if (!dry_at) return 0;
    const double shift_s = std::max(drift_ms / 1000, -std::max(0.0, *dry_at - now));
    if (shift_s > 0) dry_at = std::max(*dry_at, now);  // a player that has run dry holds still from now on
    *dry_at += shift_s;
    return shift_s * 1000;
  }

 private:
  double buffer_s_, began_at_ = 0, added_s_ = 0;
  std::optional<std::pair<double, double>> picture_;
  std::optional<double> base_ms_;
};

// Frames into speech: in order, each once, damaged ones left out, missing ones asked for again or given up.
class Hearing {
 public:
  Hearing(Ears& ears, Handler& handler, const Config& config)
      : cache_win(config.cache_win), playout(config.playout_ms / 1000), ears_(ears), handler_(handler), config_(config) {}

  uint32_t last = 0, part = 0;  // the place up to which all was heard or given up
  int32_t cache_win;            // the most frames asked for at once
  std::optional<std::string> ended;
  double frame_s = 0.08;
  uint32_t spoken = 0, duplicates = 0, corrupt = 0, missed = 0;
  std::deque<std::pair<uint32_t, std::string>> recent;  // the newest frames heard, at most client_win
  Playout playout;

  void take(double now, const Frame& frame) {
    if (frame.kind == IDLE || ended) return;
    if (!verify(frame, codes_)) {
      corrupt++;
      return;
    }
    const int32_t ahead = distance(last, frame.id);
    if (ahead < 0 || (ahead == 0 && frame.part <= part) || held_.count({frame.id, frame.part})) {
      duplicates++;
      return;
    }
    while (distance(last, frame.id) > config_.client_win) {  // more is missing than can be waited for
      pass_over(now, held_.empty() ? distance(last, frame.id) - 1 : missing());
      if (ended) return;
    }
    held_[{frame.id, frame.part}] = frame;
    release(now);
  }
  // Look after what is missing: ask again, or give up what is not to be waited for any longer.
  void settle(double now) {
    while (!held_.empty() && !ended) {
      const int32_t run = missing();
      if (!gap_at_) gap_at_ = rtx_at_ = now;
      if (now >= patience(run)) {
        pass_over(now, run);
        continue;
      }
      if (run >= config_.rtx_thr && now >= rtx_at_) {
        rtx_at_ = now + config_.rtx_again_s;
        handler_.rtx(last + 1, static_cast<uint32_t>(std::min(run, cache_win)));
      }
      return;
    }
    gap_at_.reset();
  }
  void pause() { gap_at_.reset(); }  // whoever comes back brings what is missing: it is not given up before
  void refused(double now, uint32_t from_id) {
    if (held_.empty() || !gap_at_ || from_id != last + 1) return;
    pass_over(now, missing());
    settle(now);
  }
  std::optional<double> wake_at() const {
    if (!gap_at_ || held_.empty()) return std::nullopt;
    const int32_t run = missing();
    return run >= config_.rtx_thr ? std::min(patience(run), rtx_at_) : patience(run);
  }

 private:
  // Frames of speech before the nearest that waits; 0 where only text is missing. What is said after a missing frame does
  // not end the run: the next frame may be missing, too.
  int32_t missing() const {
    int32_t speech = INT32_MAX, newest = 0;
    for (const auto& [key, frame] : held_) {
      const int32_t ahead = distance(last, key.first);
      if (ahead == 0) return 0;
      if (key.second == 0) speech = std::min(speech, ahead - 1);
      newest = std::max(newest, ahead);
    }
    return speech < INT32_MAX ? speech : newest;
  }
  bool may_grow() const {  // neither speech nor the end of the turn waits behind the run
    return std::none_of(held_.begin(), held_.end(),
                        [](const auto& held) { return held.first.second == 0 || held.second.kind == END; });
  }
  double patience(int32_t run) const {
    const double began = gap_at_.value_or(0);
    if (run >= config_.rtx_thr) return began + config_.rtx_patience_s;
    const double wait_s = run && may_grow() ? config_.rtx_patience_s : config_.reorder_s;
    return std::max(began + wait_s, playout.dry_at.value_or(0));
  }
  void pass_over(double now, int32_t run) {
    if (run) {
      const uint32_t from = last + 1, count = static_cast<uint32_t>(run);
      missed += count;
      playout.add(now, run * frame_s);
      last += count;
      part = 0;
      ears_.lost(from, count);
      // What was said between them is behind the place now.
      std::map<std::pair<uint32_t, uint32_t>, Frame> between;
      for (auto it = held_.begin(); it != held_.end();) {
        const uint32_t after = it->first.first - from;
        if (after + 1 >= count) {
          ++it;
          continue;
        }
        between[{after, it->first.second}] = std::move(it->second);
        it = held_.erase(it);
      }
      for (const auto& [key, frame] : between) deliver(now, frame);
    } else {
      uint32_t least = UINT32_MAX;
      for (const auto& [key, frame] : held_) {
        if (key.first == last) least = std::min(least, key.second);
      }
      part = least - 1;
    }
    gap_at_.reset();
    release(now);
  }
  void release(double now) {
    while (!ended) {
      auto next = held_.find({last, part + 1});
      if (next == held_.end()) {
        next = held_.find({last + 1, 0});
        if (next == held_.end()) return;
        // Text that is missing is not waited for once its frame is over; what there is of it comes first.
        const auto text = held_.lower_bound({last, part});
        if (text != held_.end() && text->first.first == last) next = text;
      }
      const Frame frame = std::move(next->second);
      held_.erase(next);
      last = frame.id;
      part = frame.part;
      gap_at_.reset();
      deliver(now, frame);
    }
  }
  void deliver(double now, const Frame& frame) {
    if (frame.kind == SPEECH) {
      spoken++;
      recent.emplace_back(frame.id, frame.payload);
      if (recent.size() > static_cast<size_t>(config_.client_win)) recent.pop_front();
      const double seconds = codes_ ? frame_s : static_cast<double>(frame.payload.size()) / bytes_per_s_;
      ears_.audio(frame.id, frame.payload, playout.add(now, seconds));
    } else if (frame.kind == TEXT) {
      ears_.text(frame.payload);
    } else if (frame.kind == FORMAT) {
      const int rate = std::atoi(json_value(frame.payload, "sample_rate_hz").c_str());
      const int channels = std::atoi(json_value(frame.payload, "channels").c_str());
      codes_ = json_value(frame.payload, "codec") != "pcm16";
      bytes_per_s_ = 2.0 * rate * channels;
      ears_.format(rate, channels);
    } else if (frame.kind == END) {
      ended = json_value(frame.payload, "reason");
    } else {
      ears_.event(frame.payload);
    }
  }

  Ears& ears_;
  Handler& handler_;
  const Config config_;
  std::map<std::pair<uint32_t, uint32_t>, Frame> held_;
  std::optional<double> gap_at_;
  double rtx_at_ = 0, bytes_per_s_ = 48000;
  bool codes_ = false;
};

// ---- session --------------------------------------------------------------------------------------------------------

using Headers = std::map<std::string, std::string>;  // names in lower case

// What a server says of a turn in the head of its first answer.
struct Terms {
  std::string stream;
  uint32_t first_id = 0;
  double frame_ms = 80;
  double heartbeat_s = 0;  // how often the server says that it is still here, where it says so
  double grace_s = 30;     // how long it holds the turn for a client that is away
  std::optional<uint32_t> cache_win;

  // Set all from an answer; returns why it is none that a turn can be heard from, empty for one that is.
  std::string read(int status, const Headers& headers) {
    const auto id = headers.find("x-omni-resume");
    if (status != 200 || id == headers.end() || id->second.empty()) return std::to_string(status);
    const auto first = headers.find("x-omni-first-id");
    const auto from = whole(first == headers.end() ? "" : first->second);
    if (!from) return "odd x-omni-first-id";
    first_id = *from;
    const std::pair<const char*, double*> numbers[] = {
        {"x-omni-frame-ms", &frame_ms}, {"x-omni-heartbeat-s", &heartbeat_s}, {"x-omni-grace-s", &grace_s}};
    for (const auto& [name, value] : numbers) {
      const auto said = headers.find(name);
      if (said == headers.end()) continue;
      const auto number = decimal(said->second);
      if (!number) return std::string("odd ") + name;
      *value = *number;
    }
    const auto cache = headers.find("x-omni-cache-win");
    if (cache != headers.end()) {
      cache_win = whole(cache->second);
      if (!cache_win || *cache_win == 0 || *cache_win > INT32_MAX) return "odd x-omni-cache-win";
    }
    stream = id->second;
    return "";
  }
};

// One turn over connections that come and go. Every input has the time it comes at; wake_at() says when tick() is due.
class Session {
 public:
  Session(Ears& ears, Handler& handler, const Config& config, std::function<double()> jitter)
      : hearing(ears, handler, config), ears_(ears), handler_(handler), config_(config), jitter_(std::move(jitter)) {}

  std::string stream;  // the id to resume under, once there is one
  Hearing hearing;

  bool over() const { return mode_ == Mode::Over; }
  void start(double now) {
    heard_at_ = now;
    attempt(now);
  }
  void opened(double now, int conn) {
    const auto began = opened_at_.find(conn);
    if (began == opened_at_.end() || has(asked_, conn) || has(standing_, conn)) return;
    saw_rtt(now - began->second);
    if (mode_ == Mode::Hearing || (mode_ == Mode::Asking && !asked_.empty())) {
      drop(conn);
    } else if (may_ask_) {
      ask(now, conn);
    } else {
      standing_.push_back(conn);
    }
  }
  void head(double now, int conn, int status, const Headers& headers) {
    if (!has(asked_, conn)) return;
    if (conn == last_asked_) saw_rtt(now - asked_at_);
    if (status == 429 || status == 503) {  // a server that asks to be left alone for a moment
      drop(conn);
      next_try_ = now + 1.0;
    } else if (stream.empty()) {
      const std::string why = terms_.read(status, headers);
      if (!why.empty()) return end("refused: " + why);
      stream = terms_.stream;
      hearing.last = terms_.first_id - 1;
      hearing.part = 0;
      hearing.frame_s = terms_.frame_ms / 1000;
      if (terms_.cache_win) hearing.cache_win = static_cast<int32_t>(*terms_.cache_win);
      hear(now, conn);
    } else if (status == 404 || status == 410 || status == 416) {
      end(status == 404 ? "unknown" : status == 410 ? "gone" : "ahead");
    } else if (status != 206) {  // 409: a later attempt has arrived before this one
      drop(conn);
    } else {  // not heard yet: the frames behind the head may take longer than another attempt
      const auto result = headers.find("x-omni-result");
      results_[conn] = result == headers.end() ? "hit" : result->second;
    }
  }
  void data(double now, int conn, const std::vector<Frame>& frames) {
    if (!has(asked_, conn) || stream.empty()) return;
    if (mode_ == Mode::Hearing || !frames.empty()) hear(now, conn);
    const uint32_t spoken = hearing.spoken;
    const double dry_at = hearing.playout.dry_at.value_or(now);
    for (const Frame& frame : frames) {
      if (frame.kind == END && frame.part == 0) {
        farewell(now, conn, json_value(frame.payload, "reason"));
        break;
      }
      hearing.take(now, frame);
    }
    if (mode_ == Mode::Hearing) hearing.settle(now);
    if (lost_at_ && (hearing.spoken > spoken || hearing.ended)) {
      const auto result = results_.find(conn);
      ears_.resumed(result == results_.end() ? "" : result->second, now - *lost_at_, now - seek_at_,
                    std::max(0.0, now - dry_at));
      lost_at_.reset();
    }
    check_end();
  }
  void closed(double now, int conn) {
    if (!opened_at_.erase(conn) || over()) return;
    const bool was_asked = has(asked_, conn);
    forget(conn);
    if (mode_ == Mode::Hearing && asked_.empty()) {
      seek(now);
    } else if (mode_ == Mode::Asking && was_asked) {
      next_try_ = now + pause();
    }
  }
  void again(double now, const std::vector<Frame>& frames) {
    if (over()) return;
    for (const Frame& frame : frames) hearing.take(now, frame);
    if (mode_ == Mode::Hearing) hearing.settle(now);
    check_end();
  }
  void refused(double now, uint32_t from_id) {
    if (over()) return;
    hearing.refused(now, from_id);
    check_end();
  }
  void picture(double now, double pts_ms) {
    if (over()) return;
    const auto drift = hearing.playout.drift_ms(now, pts_ms);
    if (!drift || std::abs(*drift) <= config_.drift_ms) return;
    const double shift_ms = hearing.playout.shift(now, *drift);
    if (shift_ms == 0) return;
    ears_.realign(shift_ms);
    handler_.report_realign(shift_ms);
  }
  void tick(double now) {
    if (over()) return;
    if (mode_ == Mode::Hearing) {
      hearing.settle(now);
      check_end();
    }
    if (mode_ == Mode::Hearing) {
      if (now >= silent_at()) seek(now);
    } else if (over()) {
      return;
    } else if (now >= give_up_at()) {
      end("no way to the server");
    } else if (now >= next_try_) {
      if (mode_ == Mode::Asking) {
        for (const int conn : std::vector<int>(asked_)) drop(conn);
      }
      attempt(now);
    }
  }
  std::optional<double> wake_at() const {
    if (over()) return std::nullopt;
    if (mode_ != Mode::Hearing) return std::min(next_try_, give_up_at());
    const auto gap = hearing.wake_at();
    return gap ? std::min(*gap, silent_at()) : silent_at();
  }

 private:
  enum class Mode { Asking, Hearing, Seeking, Over };
  static constexpr int QUICK_TRIES = 5;
  static constexpr double GRACE_AND_S = 5.0;  // the server notices later than the client that nothing passes
  static constexpr size_t SPARE_CONNECTIONS = 6;

  static bool has(const std::vector<int>& conns, int conn) {
    return std::find(conns.begin(), conns.end(), conn) != conns.end();
  }
  static std::string ms(double seconds) { return thousandths(seconds * 1000); }
  void ask(double now, int conn) {
    may_ask_ = false;
    asked_.push_back(conn);
    asked_at_ = now;
    last_asked_ = conn;
    asks_++;
    if (mode_ == Mode::Asking) {
      next_try_ = now + config_.answer_s;
      return handler_.ask(conn, "");
    }
    std::string body = "{\"stream\": \"" + stream + "\", \"last_good_id\": " + std::to_string(hearing.last) +
                       ", \"part\": " + std::to_string(hearing.part) + ", \"rest\": true, \"attempt\": " +
                       std::to_string(asks_) + ", \"outage_ms\": " + ms(now - heard_at_) + ", \"rtt_ms\": " + ms(rtt_s_);
    if (hearing.playout.dry_at) body += ", \"due_ms\": " + ms(*hearing.playout.dry_at - now);
    handler_.ask(conn, body + "}");
  }
  void saw_rtt(double took_s) {  // a handshake, or a question and its answer: the round trip is no longer
    took_s = std::max(0.001, took_s);
    rtt_s_ = rtt_s_ > 0 ? std::min(rtt_s_, took_s) : took_s;
  }
  double give_up_at() const { return heard_at_ + config_.give_up_s.value_or(terms_.grace_s + GRACE_AND_S); }
  // When the network is taken for lost, if nothing is heard: sooner when the player would run dry meanwhile.
  double silent_at() const {
    const double at = heard_at_ + std::max(config_.silence_s, 4 * terms_.heartbeat_s);
    if (!hearing.playout.dry_at) return at;
    const double hurry_s = std::max(config_.hurry_s, 2 * terms_.heartbeat_s);
    return std::min(at, std::max(heard_at_ + hurry_s, *hearing.playout.dry_at - 3 * rtt_s_));
  }
  void seek(double now) {
    mode_ = Mode::Seeking;
    hearing.pause();
    if (!lost_at_) {
      lost_at_ = heard_at_;
      seek_at_ = now;
      results_.clear();
    }
    tries_ = 0;
    attempt(now);
  }
  // Ask on a connection that stands, or on the first that will; two are opened at first, for one may be lost.
  void attempt(double now) {
    tries_++;
    next_try_ = now + pause();
    may_ask_ = true;
    if (!standing_.empty()) {
      const int conn = standing_.front();
      standing_.erase(standing_.begin());
      ask(now, conn);
    }
    for (int i = 0; i < (tries_ == 1 ? 2 : 1); i++) {
      // At the server the newest asked wins; of the others the oldest is the least likely to answer.
      std::vector<int> spare;
      for (const auto& [conn, at] : opened_at_) {
        if (asked_.empty() || conn != asked_.back()) spare.push_back(conn);
      }
      if (spare.size() >= SPARE_CONNECTIONS) drop(spare.front());
      opened_at_[conns_] = now;
      handler_.open(conns_++);
    }
  }
  // How long an attempt stays the newest: a round trip and a half at first, then doubling, each +- 25 %.
  double pause() {
    double pause_s = rtt_s_ > 0 ? std::min(1.0, std::max(0.1, 1.5 * rtt_s_)) : 0.3;
    pause_s = std::min(config_.backoff_s, pause_s * std::pow(2.0, std::max(0, tries_ - QUICK_TRIES)));
    return pause_s * (0.75 + 0.5 * jitter_());
  }
  // A connection speaks: those asked before it are done with, and those not asked yet are not needed.
  void hear(double now, int conn) {
    mode_ = Mode::Hearing;
    heard_at_ = now;
    const std::vector<int> needed(std::find(asked_.begin(), asked_.end(), conn), asked_.end());
    for (const auto& [other, at] : std::map<int, double>(opened_at_)) {
      if (!has(needed, other)) drop(other);
    }
  }
  void farewell(double now, int conn, const std::string& why) {
    if (why == "superseded" && conn == last_asked_) return end(why);  // else by a request of our own
    drop(conn);
    if (asked_.empty()) seek(now);
  }
  void check_end() {
    if (hearing.ended && !over()) end(*hearing.ended);
  }
  void forget(int conn) {
    for (auto* conns : {&asked_, &standing_}) conns->erase(std::remove(conns->begin(), conns->end(), conn), conns->end());
  }
  void drop(int conn) {
    if (!opened_at_.erase(conn)) return;
    forget(conn);
    handler_.drop(conn);
  }
  void end(const std::string& why) {
    mode_ = Mode::Over;
    for (const auto& [conn, at] : std::map<int, double>(opened_at_)) drop(conn);
    handler_.ended(why);
  }

  Ears& ears_;
  Handler& handler_;
  const Config config_;
  std::function<double()> jitter_;
  Mode mode_ = Mode::Asking;
  // Every live connection by when it was begun; of those, the ones that stand unused, and the ones asked on.
  std::map<int, double> opened_at_;
  std::vector<int> standing_, asked_;
  std::map<int, std::string> results_;
  double asked_at_ = 0, next_try_ = 0, rtt_s_ = 0, heard_at_ = 0, seek_at_ = 0;
  Terms terms_;
  std::optional<double> lost_at_;
  bool may_ask_ = true;
  int last_asked_ = -1, asks_ = 0, conns_ = 0, tries_ = 0;
};

// ---- HTTP -----------------------------------------------------------------------------------------------------------

// One answer as it comes: feed() returns bytes of the body. Throws std::runtime_error for what is no answer.
class Answer {
 public:
  int status = 0;  // 0 until the head is there
  Headers headers;
  bool done = false;

  std::string feed(const std::string& data) {
    rest_ += data;
    if (!status && !read_head()) return "";
    if (done) return "";
    if (!chunked_) {
      std::string body = std::move(rest_);
      rest_.clear();
      if (left_ >= 0) {
        body.resize(std::min<size_t>(body.size(), static_cast<size_t>(left_)));
        left_ -= static_cast<long long>(body.size());
        done = left_ == 0;
      }
      return body;
    }
    std::string body;
    while (!done) {
      if (left_ > 0) {
        const size_t take = std::min<size_t>(rest_.size(), static_cast<size_t>(left_));
        body.append(rest_, 0, take);
        rest_.erase(0, take);
        left_ -= static_cast<long long>(take);
        if (left_ > 0) break;
        after_chunk_ = true;
      }
      const size_t start = after_chunk_ ? 2 : 0;
      const size_t end = rest_.size() < start ? std::string::npos : rest_.find("\r\n", start);
      if (end == std::string::npos) {
        if (rest_.size() > 1024) throw std::runtime_error("a chunk without a size");
        break;
      }
      const std::string size = rest_.substr(start, end - start);
      if (size.empty() || !std::isxdigit(static_cast<unsigned char>(size[0]))) throw std::runtime_error("not a chunk's size");
      left_ = std::strtoll(size.c_str(), nullptr, 16);
      rest_.erase(0, end + 2);
      after_chunk_ = false;
      done = left_ == 0;
    }
    return body;
  }

 private:
  bool read_head() {
    const size_t end = rest_.find("\r\n\r\n");
    if (end == std::string::npos) {
      if (rest_.size() > 65536) throw std::runtime_error("a head without end");
      return false;
    }
    if (rest_.compare(0, 7, "HTTP/1.") != 0 || end < 12) throw std::runtime_error("not an answer");
    const int code = std::atoi(rest_.c_str() + 9);
    size_t at = rest_.find("\r\n");
    while (at < end) {
      const size_t next = rest_.find("\r\n", at + 2);
      const std::string line = rest_.substr(at + 2, next - at - 2);
      const size_t colon = line.find(':');
      if (colon != std::string::npos) {
        const std::string name = lower(line.substr(0, colon));
        const size_t value = line.find_first_not_of(" \t", colon + 1);
        headers[name] = value == std::string::npos ? "" : line.substr(value, line.find_last_not_of(" \t") - value + 1);
      }
      at = next;
    }
    rest_.erase(0, end + 4);
    if (code >= 100 && code < 200) {
      headers.clear();
      return read_head();
    }
    status = code;
    chunked_ = lower(headers["transfer-encoding"]) == "chunked";
    if (chunked_ || status == 204) {
      left_ = 0;
    } else if (headers.count("content-length")) {
      left_ = std::strtoll(headers["content-length"].c_str(), nullptr, 10);
    }
    done = left_ == 0 && !chunked_;
    return true;
  }
  std::string rest_;
  bool chunked_ = false, after_chunk_ = false;
  long long left_ = -1;  // bytes of the chunk or the body still to come; -1: until the connection ends
};

// ---- client ---------------------------------------------------------------------------------------------------------

// One client of one server; speak() hears one turn to its end. `headers` ("Name: value\r\n" each) go with every request.
class Client : private Handler {
 public:
  Client(std::string host, uint16_t port, Ears& ears, Config config = {}, std::string headers = "")
      : host_(std::move(host)), port_(port), ears_(ears), config_(config), headers_(std::move(headers)) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() override { wires_.clear(); }

  // Ask for one turn (the body of a chat request, "stream": true) and hear it. Returns "done", or why it ended before.
  // `idle` is called every 100 ms or sooner, but not while the host's name is asked for, which may take seconds: return
  // false to hang up. What the ears throw comes out here; the server is told that nobody listens.
  std::string speak(const std::string& chat, const std::function<bool()>& idle = [] { return true; }) {
    addresses_.clear();
    wires_.clear();
    dead_.clear();
    good_ = opened_ = 0;
    std::mt19937 luck{std::random_device{}()};
    std::uniform_real_distribution<double> jitter(0, 1);
    chat_ = chat;
    reason_.clear();
    session_ = std::make_unique<Session>(ears_, static_cast<Handler&>(*this), config_, [&] { return jitter(luck); });
    try {
      session_->start(now());
      while (!session_->over()) {
        if (!idle()) {
          hang_up();
          reason_ = "hung up";
          break;
        }
        turn_wheel(std::min(now() + 0.1, session_->wake_at().value_or(0)));
        session_->tick(now());
      }
    } catch (...) {
      hang_up();
      throw;
    }
    wires_.clear();
    return reason_;
  }
  // Say that the picture of `pts_ms` is shown now (from `idle`, or from the ears).
  void picture(double pts_ms) {
    if (session_) session_->picture(now(), pts_ms);
  }
  const Session* session() const { return session_.get(); }
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  struct Wire {  // a connection; numbers of the session are >= 0, the others are for something short
    int fd = -1;
    bool connected = false;
    std::string out;
    Answer answer;
    Decoder decoder;
    std::optional<uint32_t> rtx;
    double until = 0;  // when something short has taken too long
    size_t address = 0;
    ~Wire() {
      if (fd >= 0) ::close(fd);
    }
  };

  struct Address {
    int family, type, protocol;
    std::string data;  // a sockaddr
  };

  // The first attempt of a turn, two connections, goes where the last connection was made; each further one to the next
  // address of the name, until one connects.
  void open(int conn) override {
    wires_[conn] = dial(good_ + (opened_ ? opened_ - 1 : 0));
    opened_++;
  }
  void ask(int conn, const std::string& resume) override {
    wires_[conn]->out = resume.empty() ? request("POST", "/v1/chat/completions", chat_)
                                       : request("POST", "/v1/resume", resume);
  }
  void drop(int conn) override { dead_.push_back(conn); }
  void rtx(uint32_t from_id, uint32_t count) override {
    const std::string body = "{\"stream\": \"" + session_->stream + "\", \"from_id\": " + std::to_string(from_id) +
                             ", \"count\": " + std::to_string(count) + "}";
    begin(next_aside_, "POST", "/v1/rtx", body);
    wires_[next_aside_--]->rtx = from_id;
  }
  void report_realign(double shift_ms) override {
    const std::string body = "{\"stream\": \"" + session_->stream + "\", \"shift_ms\": " + thousandths(shift_ms) + "}";
    begin(next_aside_--, "POST", "/v1/realign", body);
  }
  void ended(const std::string& reason) override { reason_ = reason; }

  static constexpr double SHORT_S = 5.0;  // how long something short may take

  void hang_up() {
    wires_.clear();
    dead_.clear();
    if (session_->over() || session_->stream.empty()) return;
    begin(next_aside_--, "DELETE", "/v1/resume/" + session_->stream, "");
    const double until = now() + 1.0;
    while (!wires_.empty() && now() < until) turn_wheel(until);
    wires_.clear();
  }
  void begin(int number, const char* method, const std::string& path, const std::string& body) {
    wires_[number] = dial(good_);
    wires_[number]->until = now() + SHORT_S;
    wires_[number]->out = request(method, path, body);
  }
  std::string request(const char* method, const std::string& path, const std::string& body) const {
    return std::string(method) + " " + path + " HTTP/1.1\r\nHost: " + host_ + ":" + std::to_string(port_) +
           "\r\nConnection: close\r\nAccept: application/vnd.omniwatch.frames\r\nContent-Type: application/json\r\n" +
           headers_ + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  // Ask for the name once a turn: who answers may be out of reach when the network is lost.
  void resolve() {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (::getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &hints, &found) != 0) return;
    for (const addrinfo* it = found; it; it = it->ai_next) {
      addresses_.push_back({it->ai_family, it->ai_socktype, it->ai_protocol,
                            std::string(reinterpret_cast<const char*>(it->ai_addr), it->ai_addrlen)});
    }
    ::freeaddrinfo(found);
  }
  // Begin to connect to the first address from `start` on, around the end, that takes it; a wire without a socket is one
  // that could not, and is closed in the next round.
  std::unique_ptr<Wire> dial(size_t start) {
    auto wire = std::make_unique<Wire>();
    if (addresses_.empty()) resolve();
    for (size_t i = 0; i < addresses_.size() && wire->fd < 0; i++) {
      wire->address = (start + i) % addresses_.size();
      const Address& to = addresses_[wire->address];
      const int fd = ::socket(to.family, to.type, to.protocol);
      if (fd < 0) continue;
      ::fcntl(fd, F_SETFL, O_NONBLOCK);
      ::fcntl(fd, F_SETFD, FD_CLOEXEC);
      sockaddr_storage at{};
      to.data.copy(reinterpret_cast<char*>(&at), sizeof at);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&at), static_cast<socklen_t>(to.data.size())) == 0 ||
          errno == EINPROGRESS) {
        wire->fd = fd;
      } else {
        ::close(fd);
      }
    }
    return wire;
  }

  // Wait for something on the wires, until `until`, and let it happen.
  void turn_wheel(double until) {
    std::vector<pollfd> polls;
    std::vector<int> numbers;
    for (const auto& [number, wire] : wires_) {
      const bool writing = !wire->connected || !wire->out.empty();
      polls.push_back({wire->fd, static_cast<short>(POLLIN | (writing ? POLLOUT : 0)), 0});
      numbers.push_back(number);
      if (wire->fd < 0) until = 0;
    }
    const int wait_ms = static_cast<int>(std::ceil(std::max(0.0, until - now()) * 1000));
    ::poll(polls.data(), polls.size(), wait_ms);
    for (size_t i = 0; i < polls.size(); i++) {
      const auto it = wires_.find(numbers[i]);
      const bool dead = std::find(dead_.begin(), dead_.end(), numbers[i]) != dead_.end();
      if (it == wires_.end() || dead) continue;
      if (numbers[i] < 0 && now() >= it->second->until) {
        dead_.push_back(numbers[i]);
        continue;
      }
      if (polls[i].fd >= 0 && polls[i].revents == 0) continue;
      if (!move(numbers[i], *it->second)) {
        if (numbers[i] >= 0) session_->closed(now(), numbers[i]);
        dead_.push_back(numbers[i]);
      }
    }
    for (const int number : dead_) wires_.erase(number);
    dead_.clear();
  }
  // Read and write what can be; false when the wire is at its end.
  bool move(int number, Wire& wire) {
    if (wire.fd < 0) return false;
    if (!wire.connected) {
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(wire.fd, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error) return false;
      pollfd ready{wire.fd, POLLOUT, 0};
      if (::poll(&ready, 1, 0) <= 0) return true;
      wire.connected = true;
      good_ = wire.address;
      opened_ = 0;
      if (number >= 0) session_->opened(now(), number);
    }
    if (!wire.out.empty()) {
      const ssize_t sent = ::send(wire.fd, wire.out.data(), wire.out.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (sent > 0) wire.out.erase(0, static_cast<size_t>(sent));
    }
    char buffer[65536];
    const ssize_t got = ::recv(wire.fd, buffer, sizeof buffer, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    const bool had_head = wire.answer.status != 0;
    std::string body;
    if (!parsed([&] { body = wire.answer.feed(std::string(buffer, static_cast<size_t>(got))); })) return false;
    const int status = wire.answer.status;
    if (!status) return true;
    if (number >= 0 && !had_head) session_->head(now(), number, status, wire.answer.headers);
    std::vector<Frame> frames;
    if ((status == 200 || status == 206) && !parsed([&] { frames = wire.decoder.feed(body); })) return false;
    if (number >= 0) {
      if (status == 200 || status == 206) session_->data(now(), number, frames);
    } else if (wire.rtx) {
      if (status == 206) session_->again(now(), frames);
      if (status == 404 || status == 410 || status == 416) session_->refused(now(), *wire.rtx);
    }
    return !wire.answer.done;
  }
  // Whether bytes were what was asked for: a connection that says something else is as good as closed.
  static bool parsed(const std::function<void()>& parse) {
    try {
      parse();
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  }

  const std::string host_;
  const uint16_t port_;
  Ears& ears_;
  const Config config_;
  const std::string headers_;
  std::string chat_, reason_;
  std::unique_ptr<Session> session_;
  std::map<int, std::unique_ptr<Wire>> wires_;
  std::vector<int> dead_;
  std::vector<Address> addresses_;  // of the host, all taken for the same server
  size_t good_ = 0, opened_ = 0;    // the address connected to last, and how often a way was tried since then
  int next_aside_ = -1;
};

}  // namespace omniwatch
