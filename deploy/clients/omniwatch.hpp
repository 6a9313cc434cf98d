// Receives speech over a mobile network: a client that reconnects and continues with the next frame. C++17 and libcurl.
//
//     struct Player : omniwatch::TurnCallbacks { void audio(uint32_t id, const std::string& pcm, double play_at) override; };
//     Player player;
//     omniwatch::Client client("https://orin.local:8000", player);
//     std::string reason = client.speak(R"({"stream": true, "model": "...", "messages": [...]})");
//
// Compile with -lcurl. libcurl resolves names, connects and runs TLS; this file has the protocol.
//
// With -DOMNIWATCH_OPUS -lopus (Debian: libopus-dev), in all files of a program or in none, speech comes in Opus: a twelfth of
// the bytes of PCM. The callbacks get PCM all the same. Frames that are lost come to audio(), concealed, for 2 s in a row.
//
// Frame, Decoder, Playout, ReorderBuffer, Session and ResponseParser are pure: time, bytes and randomness are arguments, the
// results are virtual calls. omniwatch.client (Python) has the same state machines, and the same vectors test both. Client
// gives them connections and a clock. Times are seconds of one monotonic clock; names state where it is milliseconds.
// Use a Client from one thread.
#pragma once

#include <curl/curl.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#ifdef OMNIWATCH_OPUS
#include <opus/opus.h>
#endif
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
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

// Splits a byte stream, which arrives in pieces, into frames. Throws std::runtime_error for an invalid frame.
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
// Without the C library, which writes 0,25 in an application that uses the user's locale.

inline std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// Format a number with three decimals, as JSON requires; numbers beyond 1e15 are cut to that.
inline std::string thousandths(double value) {
  value = std::max(-1e15, std::min(1e15, value));
  const long long whole = std::llround(std::abs(value) * 1000);
  const std::string rest = std::to_string(whole % 1000);
  return (value < 0 && whole ? "-" : "") + std::to_string(whole / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
}

// Parse "0.25", "80", "1e+06"; none for anything else.
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

// Parse a whole number of 32 bits; none for anything else.
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

// Return the value of a name in a flat JSON object as it is written, a string with its quotes: enough for END and FORMAT
// frames. Empty for an absent name or a value without an end.
inline std::string json_value(const std::string& json, const std::string& name) {
  size_t at = json.find("\"" + name + "\"");
  if (at == std::string::npos || (at = json.find(':', at)) == std::string::npos) return "";
  at = json.find_first_not_of(" \t\r\n", at + 1);
  if (at == std::string::npos) return "";
  const size_t end = json[at] == '"' ? json.find('"', at + 1) : json.find_first_of(",} \t\r\n", at);
  if (end == std::string::npos) return "";
  return json.substr(at, end - at + (json[at] == '"' ? 1 : 0));
}

// The same for a string, without its quotes; empty for anything else.
inline std::string json_string(const std::string& json, const std::string& name) {
  const std::string value = json_value(json, name);
  return value.size() < 2 || value[0] != '"' ? "" : value.substr(1, value.size() - 2);
}

// ---- speech ---------------------------------------------------------------------------------------------------------

// Decodes the frames of one turn from one format frame to the next, in their order.
struct SpeechDecoder {
  virtual ~SpeechDecoder() = default;
  virtual std::optional<std::string> decode(const std::string& payload) = 0;  // PCM; none for what is no frame of the format
  virtual std::optional<std::string> conceal() = 0;  // PCM for a frame that is lost; none where nothing was decoded before
};

#ifdef OMNIWATCH_OPUS
constexpr bool HAS_OPUS = true;

// Decodes packets of `frame_s` each.
class PacketDecoder : public SpeechDecoder {
 public:
  PacketDecoder(uint32_t rate_hz, uint32_t channels, double frame_s)
      : channels_(channels), samples_48k_(std::llround(48000 * frame_s)), samples_(samples_48k_ * rate_hz / 48000) {
    int error = OPUS_OK;
    decoder_.reset(opus_decoder_create(static_cast<opus_int32>(rate_hz), static_cast<int>(channels), &error));
    if (!decoder_) throw std::bad_alloc();
  }
  static bool fits(uint32_t rate_hz, uint32_t channels) {
    return (rate_hz == 24000 && channels == 1) || (rate_hz == 48000 && channels <= 2);
  }
  std::optional<std::string> decode(const std::string& packet) override {
    if (packet.empty() || packet.size() > MAX_PACKET) return std::nullopt;
    const auto* data = reinterpret_cast<const unsigned char*>(packet.data());
    const auto size = static_cast<opus_int32>(packet.size());
    if (opus_packet_get_nb_samples(data, size, 48000) != samples_48k_) return std::nullopt;
    auto pcm = run(data, size);
    decoded_ = decoded_ || pcm;
    return pcm;
  }
  std::optional<std::string> conceal() override { return decoded_ ? run(nullptr, 0) : std::nullopt; }

 private:
  static constexpr size_t MAX_PACKET = 6 * 1276;  // of 120 ms (RFC 6716)

  // Decode a packet of the right length, none for a lost one.
  std::optional<std::string> run(const unsigned char* data, opus_int32 size) {
    std::vector<opus_int16> samples(static_cast<size_t>(samples_) * channels_);
    if (opus_decode(decoder_.get(), data, size, samples.data(), static_cast<int>(samples_), 0) != samples_) return std::nullopt;
    std::string pcm;
    pcm.reserve(2 * samples.size());
    for (const opus_int16 sample : samples) {
      pcm += static_cast<char>(sample & 0xFF);
      pcm += static_cast<char>(sample >> 8 & 0xFF);
    }
    return pcm;
  }

  struct Destroy {
    void operator()(OpusDecoder* decoder) const { opus_decoder_destroy(decoder); }
  };
  const uint32_t channels_;
  const long long samples_48k_, samples_;  // of one channel, in a frame
  std::unique_ptr<OpusDecoder, Destroy> decoder_;
  bool decoded_ = false;
};
#else
constexpr bool HAS_OPUS = false;
#endif

// Return a decoder of Opus; null where such speech cannot be decoded here.
inline std::unique_ptr<SpeechDecoder> opus_decoder(uint32_t rate_hz, uint32_t channels, double frame_s) {
#ifdef OMNIWATCH_OPUS
  if (PacketDecoder::fits(rate_hz, channels)) return std::make_unique<PacketDecoder>(rate_hz, channels, frame_s);
#else
  (void)rate_hz, (void)channels, (void)frame_s;
#endif
  return nullptr;
}

// ---- reorder buffer ------------------------------------------------------------------------------------------------

struct Config {
  double silence_s = 1.0;        // without data before the connection counts as lost; at least four heartbeats
  double hurry_s = 0.35;         // the same where less audio is buffered than a return takes; at least 1.4 heartbeats
  int32_t client_win = 150;      // frames kept: those that wait for a missing one, and the newest delivered
  int32_t cache_win = 75;        // most frames in one retransmission request, where the server does not state it
  int32_t rtx_thr = 3;           // consecutive missing frames from which on retransmission is requested
  double rtx_again_s = 0.3;      // before an unanswered retransmission request is repeated
  double rtx_patience_s = 1.0;   // before requested frames count as lost
  double reorder_s = 0.1;        // wait for fewer missing frames than rtx_thr; longer while buffered audio lasts
  double drift_ms = 40.0;        // drift between voice and picture above which the voice is realigned
  double playout_ms = 80.0;      // audio buffered before the first frame plays
  double backoff_s = 1.0;        // longest pause between two attempts to reconnect
  double answer_s = 10.0;        // for the model server to begin its answer
  bool report = true;            // whether the server is told, once a second, what has been played
  double warm_s = 120.0;         // after a turn for which a connection is kept for the next question; 0: none is
  double warm_ping_s = 15.0;     // between two small requests on it; at most a third of what `Keep-Alive` states
  bool opus = true;              // whether speech is asked for in Opus, where OMNIWATCH_OPUS is defined
  int opus_bitrate = 24000;      // bits a second to ask for: 24000 or 32000
  // Without a connection before the turn is given up; if not set, once the server's grace is over.
  std::optional<double> give_up_s;
};

// What an application receives: override what is of use.
struct TurnCallbacks {
  virtual ~TurnCallbacks() = default;
  virtual void format(int /*sample_rate_hz*/, int /*channels*/) {}                              // speech from here on
  virtual void audio(uint32_t /*frame_id*/, const std::string& /*pcm*/, double /*play_at*/) {}  // play 80 ms
  virtual void text(const std::string& /*utf8*/) {}
  virtual void event(const std::string& /*json*/) {}
  // Will not come: conceal 80 ms for each. Those in Opus come to audio(), concealed, for 2 s.
  virtual void lost(uint32_t /*from_id*/, uint32_t /*count*/) {}
  virtual void realign(double /*shift_ms*/) {}                    // drop |shift_ms| (negative), or pause that long
  // New data after an outage: `answer_s` after the first attempt, `late_s` after the player ran dry.
  virtual void resumed(const std::string& /*result*/, double /*outage_s*/, double /*answer_s*/, double /*late_s*/) {}
};

// What a Session calls beside TurnCallbacks. `conn` numbers its connections.
struct SessionHandler {
  virtual ~SessionHandler() = default;
  virtual void open(int conn) = 0;                           // connect, then call opened(), closed() or untrusted()
  virtual void ask(int conn, const std::string& resume) = 0; // POST /v1/resume with this body, or, if empty, the chat
  virtual void drop(int conn) = 0;                           // close a connection
  virtual void rtx(uint32_t from_id, uint32_t count) = 0;    // POST /v1/rtx, then call again() or refused()
  virtual void report_realign(double shift_ms) = 0;          // POST /v1/realign
  virtual void ended(const std::string& reason) = 0;         // "done", or why not
};

// Models a player that buffers `buffer_s` before its first frame and pauses while it has nothing to play.
class Playout {
 public:
  explicit Playout(double buffer_s) : buffer_s_(buffer_s) {}
  std::optional<double> dry_at;  // when the buffered audio will have been played; none before the first frame

  double add(double now, double seconds) {
    if (!dry_at) {
      dry_at = began_at_ = now + buffer_s_;
      if (picture_) base_ms_ = picture_->second + (began_at_ - picture_->first) * 1000;
    }
    const double play_at = std::max(now, *dry_at);
    starved_s_ += play_at - *dry_at;
    dry_at = play_at + seconds;
    added_s_ += seconds;
    return play_at;
  }
  // Return how far the voice leads the picture, which is at `pts_ms` now; none while no voice plays.
  std::optional<double> drift_ms(double now, double pts_ms) {
    picture_ = {now, pts_ms};
    if (!dry_at || now < began_at_) return std::nullopt;
    if (!base_ms_) base_ms_ = pts_ms - (now - began_at_) * 1000;
    return (added_s_ - std::max(0.0, *dry_at - now)) * 1000 - (pts_ms - *base_ms_);
  }
  // Correct a drift as far as possible; return the milliseconds dropped (negative) or paused.
  double shift(double now, double drift_ms) {
    if (!dry_at) return 0;
    const double shift_s = std::max(drift_ms / 1000, -std::max(0.0, *dry_at - now));
    if (shift_s > 0) {  // a player that has run dry pauses from now on
      starved_s_ += std::max(0.0, now - *dry_at);
      dry_at = std::max(*dry_at, now);
    }
    *dry_at += shift_s;
    shifted_s_ += shift_s;
    return shift_s * 1000;
  }
  // How much has been played, as without corrections: whoever models the player is told of those.
  double played_s(double now) const {
    if (!dry_at) return 0;
    return std::min(std::max(0.0, added_s_ - std::max(0.0, *dry_at - now) + shifted_s_), added_s_);
  }
  // For how long there has been nothing to play, from the first frame on.
  double starved_s(double now) const { return starved_s_ + std::max(0.0, now - dry_at.value_or(now)); }

 private:
  double buffer_s_, began_at_ = 0, added_s_ = 0, shifted_s_ = 0, starved_s_ = 0;
  std::optional<std::pair<double, double>> picture_;
  std::optional<double> base_ms_;
};

// Delivers frames in order and once each; drops damaged ones, requests missing ones again or skips them.
class ReorderBuffer {
 public:
  ReorderBuffer(TurnCallbacks& callbacks, SessionHandler& handler, const Config& config)
      : cache_win(config.cache_win), playout(config.playout_ms / 1000), callbacks_(callbacks), handler_(handler), config_(config) {}

  uint32_t last = 0, part = 0;  // the place up to which all frames were delivered or skipped
  int32_t cache_win;            // most frames in one retransmission request
  std::optional<std::string> ended;
  double frame_s = 0.08;
  double lookahead_ms = 0;      // by how much speech comes later than in PCM
  uint32_t spoken = 0, duplicates = 0, corrupt = 0, missed = 0;
  std::deque<std::pair<uint32_t, std::string>> recent;  // newest frames delivered, at most client_win
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
    if (ahead > MAX_JUMP || held_.size() >= MAX_HELD) {
      corrupt++;
      return;
    }
    while (distance(last, frame.id) > config_.client_win) {  // the gap exceeds the window
      skip(now, held_.empty() ? distance(last, frame.id) - 1 : missing_run());
      if (ended) return;
    }
    held_[{frame.id, frame.part}] = frame;
    release(now);
  }
  // Request missing frames again, or skip them once their time is over.
  void settle(double now) {
    while (!held_.empty() && !ended) {
      const int32_t run = missing_run();
      if (!gap_at_) gap_at_ = rtx_at_ = now;
      if (now >= wait_until(run)) {
        skip(now, run);
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
  void pause() { gap_at_.reset(); }  // the return brings what is missing
  void refused(double now, uint32_t from_id) {
    if (held_.empty() || !gap_at_ || from_id != last + 1) return;
    skip(now, missing_run());
    settle(now);
  }
  std::optional<double> wake_at() const {
    if (!gap_at_ || held_.empty()) return std::nullopt;
    const int32_t run = missing_run();
    return run >= config_.rtx_thr ? std::min(wait_until(run), rtx_at_) : wait_until(run);
  }

 private:
  static constexpr uint32_t MAX_RATE_HZ = 768000, MAX_CHANNELS = 32;
  static constexpr int32_t MAX_JUMP = 45000;  // an hour of speech: a frame that is further ahead counts as damaged
  static constexpr size_t MAX_HELD = 2048;    // frames behind a missing one; what comes on top counts as damaged
  static constexpr int MAX_CONCEALED = 25;    // frames in a row: by then the decoder has faded to silence

  // Count missing frames of speech before the nearest held one; 0 where only text is missing. Text that follows a missing
  // frame does not end the run: the next frame may be missing, too.
  int32_t missing_run() const {
    int32_t speech = INT32_MAX, newest = 0;
    for (const auto& [key, frame] : held_) {
      const int32_t ahead = distance(last, key.first);
      if (ahead == 0) return 0;
      if (key.second == 0) speech = std::min(speech, ahead - 1);
      newest = std::max(newest, ahead);
    }
    return speech < INT32_MAX ? speech : newest;
  }
  bool may_grow() const {  // neither speech nor the end of the turn is held behind the run
    return std::none_of(held_.begin(), held_.end(),
                        [](const auto& held) { return held.first.second == 0 || held.second.kind == END; });
  }
  double wait_until(int32_t run) const {
    const double began = gap_at_.value_or(0);
    if (run >= config_.rtx_thr) return began + config_.rtx_patience_s;
    const double wait_s = run && may_grow() ? config_.rtx_patience_s : config_.reorder_s;
    return std::max(began + wait_s, playout.dry_at.value_or(0));
  }
  void skip(double now, int32_t run) {
    if (run) {
      const uint32_t from = last + 1, count = static_cast<uint32_t>(run);
      last += count;
      part = 0;
      lose(now, from, count);
      // Text and events between the skipped frames are behind the place now.
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
        // Missing text is not waited for once the next frame is here; the text that is held comes first.
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
  // Conceal frames that will not come, as far as the decoder can; leave the others to the application.
  void lose(double now, uint32_t from, uint32_t count) {
    missed += count;
    for (; count && decoder_ && concealed_ < MAX_CONCEALED; from++, count--) {
      const auto sound = decoder_->conceal();
      if (!sound) break;
      concealed_++;
      callbacks_.audio(from, *sound, playout.add(now, frame_s));
    }
    if (!count) return;
    playout.add(now, count * frame_s);
    callbacks_.lost(from, count);
  }
  void speak(double now, const Frame& frame) {
    const auto decoded = decoder_ ? decoder_->decode(frame.payload) : std::nullopt;
    if (decoder_ && !decoded) return lose(now, frame.id, 1);
    const std::string& sound = decoded ? *decoded : frame.payload;
    concealed_ = 0;
    spoken++;
    recent.emplace_back(frame.id, frame.payload);
    if (recent.size() > static_cast<size_t>(config_.client_win)) recent.pop_front();
    const double seconds = codes_ ? frame_s : static_cast<double>(sound.size()) / bytes_per_s_;
    callbacks_.audio(frame.id, sound, playout.add(now, seconds));
  }
  void deliver(double now, const Frame& frame) {
    if (frame.kind == SPEECH) {
      speak(now, frame);
    } else if (frame.kind == TEXT) {
      callbacks_.text(frame.payload);
    } else if (frame.kind == FORMAT) {
      const uint32_t rate = whole(json_value(frame.payload, "sample_rate_hz")).value_or(0);
      const uint32_t channels = whole(json_value(frame.payload, "channels")).value_or(0);
      if (!rate || rate > MAX_RATE_HZ || !channels || channels > MAX_CHANNELS) {
        ended = "refused: odd format";
        return;
      }
      const std::string codec = json_string(frame.payload, "codec");
      decoder_.reset();
      concealed_ = 0;
      lookahead_ms = 0;
      if (codec == "opus") {
        decoder_ = opus_decoder(rate, channels, frame_s);
        if (!decoder_) {
          ended = "refused: odd format";
          return;
        }
        lookahead_ms = decimal(json_value(frame.payload, "lookahead_ms")).value_or(0);
      }
      codes_ = codec != "pcm16" && codec != "opus";
      bytes_per_s_ = 2.0 * rate * channels;
      callbacks_.format(static_cast<int>(rate), static_cast<int>(channels));
    } else if (frame.kind == END) {
      ended = json_string(frame.payload, "reason");
      if (ended->empty()) ended = "refused: odd end";
    } else {
      callbacks_.event(frame.payload);
    }
  }

  TurnCallbacks& callbacks_;
  SessionHandler& handler_;
  const Config config_;
  std::map<std::pair<uint32_t, uint32_t>, Frame> held_;
  std::optional<double> gap_at_;
  double rtx_at_ = 0, bytes_per_s_ = 48000;
  bool codes_ = false;
  std::unique_ptr<SpeechDecoder> decoder_;  // of Opus; null for what needs none
  int concealed_ = 0;                       // frames in a row
};

// ---- report ---------------------------------------------------------------------------------------------------------

// Decides what to report of one turn, and when: its round trip, how much was played, how long the player starved.
// The underrun is the sum so far, so that a report without an answer can be repeated. A server believes no underrun longer
// than since the last report, by when that one reached it: no more is said than has passed since the answer to it.
class TurnReport {
 public:
  explicit TurnReport(const Playout& playout) : playout_(playout) {}
  std::optional<double> due_at;  // none where there is nothing to report, or no server that takes it

  void asked(double now) { asked_at_ = now; }
  // Take the id under which the server lets the client report, empty where it names none.
  void begin(const std::string& stream) {
    constexpr const char* ALLOWED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    const bool valid = stream.size() >= 16 && stream.size() <= 64 && stream.find_first_not_of(ALLOWED) == std::string::npos;
    stream_ = valid ? stream : "";
  }
  void heard(double now) {
    if (rtt_s_ || stream_.empty()) return;
    rtt_s_ = now - asked_at_;
    due_at = told_at_ = now;
  }
  void end(double now) {
    if (!ended_at_) ended_at_ = now;
  }
  void stop() {
    due_at.reset();
    stream_.clear();
  }
  // The report to send now.
  std::string body(double now) {
    sent_at_ = now;
    telling_s_ = std::min(playout_.starved_s(ended_at_.value_or(now)), told_s_ + now - told_at_);
    last_ = ended_at_ && now >= playout_.dry_at.value_or(0);
    std::string body = "{\"stream\": \"" + stream_ + "\", \"played_ms\": " + thousandths(playout_.played_s(now) * 1000) +
                       ", \"underrun_ms\": " + thousandths(telling_s_ * 1000);
    if (rtt_s_ && !rtt_told_) body += ", \"rtt_ms\": " + thousandths(*rtt_s_ * 1000);
    return body + "}";
  }
  // Take the status of the answer, 0 where there was none.
  void answered(double now, int status) {
    if (stream_.empty()) return;
    if (status == 204) {
      rtt_told_ = true;
      told_at_ = now;
      told_s_ = telling_s_;
    }
    const double late_s = now - playout_.dry_at.value_or(0);
    if (!(status == 204 || repeated(status)) || (last_ && (status == 204 || late_s > LINGER_S))) {
      stop();
    } else {
      due_at = std::max(now, sent_at_ + EACH_S);
    }
  }

 private:
  static constexpr double EACH_S = 1.0;    // between two reports
  static constexpr double LINGER_S = 5.0;  // after the last speech was played for which a report that failed is repeated
  static bool repeated(int status) {
    return status == 0 || status == 409 || status == 429 || status == 500 || (status >= 502 && status <= 504);
  }
  const Playout& playout_;
  std::string stream_;
  double asked_at_ = 0, sent_at_ = 0, told_at_ = 0, told_s_ = 0, telling_s_ = 0;
  std::optional<double> rtt_s_, ended_at_;
  bool rtt_told_ = false, last_ = false;
};

// ---- session --------------------------------------------------------------------------------------------------------

using Headers = std::map<std::string, std::string>;  // names in lower case

// What a server states about a turn in the head of its first response.
struct TurnHeaders {
  std::string stream;
  uint32_t first_id = 0;
  double frame_ms = 80;
  double heartbeat_s = 0;  // between the server's heartbeats; 0 where it states none
  double grace_s = 30;     // for which the server keeps the turn for a client that is disconnected
  std::optional<uint32_t> cache_win;

  // Set all from a response; return why it begins no resumable turn, empty for one that does.
  std::string read(int status, const Headers& headers) {
    const auto id = headers.find("x-omni-resume");
    if (status != 200 || id == headers.end() || id->second.empty()) return std::to_string(status);
    // The id is sent back in JSON and in a header.
    constexpr const char* ALLOWED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    if (id->second.size() > 128 || id->second.find_first_not_of(ALLOWED) != std::string::npos) return "odd x-omni-resume";
    const auto first = headers.find("x-omni-first-id");
    const auto from = whole(first == headers.end() ? "" : first->second);
    if (!from) return "odd x-omni-first-id";
    first_id = *from;
    struct Bounded {
      const char* name;
      double *value, least, most;
    };
    const Bounded numbers[] = {{"x-omni-frame-ms", &frame_ms, 1, 10000},
                               {"x-omni-heartbeat-s", &heartbeat_s, 0, 86400},
                               {"x-omni-grace-s", &grace_s, 0, 604800}};
    for (const auto& [name, value, least, most] : numbers) {
      const auto stated = headers.find(name);
      if (stated == headers.end()) continue;
      const auto number = decimal(stated->second);
      if (!number || *number < least || *number > most) return std::string("odd ") + name;
      *value = *number;
    }
    const auto cache = headers.find("x-omni-cache-win");
    if (cache != headers.end()) {
      cache_win = whole(cache->second);
      if (!cache_win || *cache_win == 0 || *cache_win > 1000000) return "odd x-omni-cache-win";
    }
    stream = id->second;
    return "";
  }
};

// Reason of a turn for which no connection came about.
constexpr const char* NO_WAY = "no way to the server";

// Runs one turn over changing connections. Every input states its time; wake_at() tells when tick() is due.
// `handshake_rtts`: round trips that a connection takes to establish, 1 for TCP, 2 with TLS 1.3.
class Session {
 public:
  Session(TurnCallbacks& callbacks, SessionHandler& handler, const Config& config, std::function<double()> jitter,
          int handshake_rtts = 1)
      : buffer(callbacks, handler, config), report(buffer.playout), callbacks_(callbacks), handler_(handler), config_(config),
        jitter_(std::move(jitter)), handshake_rtts_(handshake_rtts) {}

  std::string stream;  // id to resume under; empty before the first response
  ReorderBuffer buffer;
  TurnReport report;

  bool over() const { return mode_ == Mode::Over; }
  // With `warm`, connection 0 was established before, and is to be asked on at once.
  void start(double now, bool warm = false) {
    data_at_ = now;
    if (!warm) return attempt(now);
    warm_ = conns_++;
    opened_at_[warm_] = now;
    ask(now, warm_);
  }
  void opened(double now, int conn) {
    const auto began = opened_at_.find(conn);
    if (began == opened_at_.end() || has(asked_, conn) || has(idle_, conn)) return;
    saw_rtt((now - began->second) / handshake_rtts_);
    if (mode_ == Mode::Receiving || (mode_ == Mode::Starting && !asked_.empty())) {
      drop(conn);
    } else if (may_ask_) {
      ask(now, conn);
    } else {
      idle_.push_back(conn);
    }
  }
  void head(double now, int conn, int status, const Headers& headers) {
    if (!has(asked_, conn)) return;
    if (conn == last_asked_) saw_rtt(now - asked_at_);
    if (status == 429 || status == 503) {  // the server is busy
      drop(conn);
      next_try_ = now + 1.0;
    } else if (stream.empty()) {
      const std::string why = turn_headers_.read(status, headers);
      if (!why.empty()) return end(now, "refused: " + why);
      stream = turn_headers_.stream;
      buffer.last = turn_headers_.first_id - 1;
      buffer.part = 0;
      buffer.frame_s = turn_headers_.frame_ms / 1000;
      const auto listener = headers.find("x-omniwatch-stream");
      report.begin(listener == headers.end() ? "" : listener->second);
      if (turn_headers_.cache_win) buffer.cache_win = static_cast<int32_t>(*turn_headers_.cache_win);
      receive(now, conn);
    } else if (status == 404 || status == 410 || status == 416) {
      end(now, status == 404 ? "unknown" : status == 410 ? "gone" : "ahead");
    } else if (status != 206) {  // 409: a later attempt has arrived before this one
      drop(conn);
    } else {  // no data yet: lost packets may delay the frames for longer than another attempt takes
      const auto result = headers.find("x-omni-result");
      results_[conn] = result == headers.end() ? "hit" : result->second;
    }
  }
  void data(double now, int conn, const std::vector<Frame>& frames) {
    if (!has(asked_, conn) || stream.empty()) return;
    if (!frames.empty()) data_at_ = now;
    if (mode_ == Mode::Receiving || is_return(conn, frames)) receive(now, conn);
    const uint32_t spoken = buffer.spoken;
    const double dry_at = buffer.playout.dry_at.value_or(now);
    for (const Frame& frame : frames) {
      if (frame.kind == END && frame.part == 0) {
        superseded(now, conn, json_string(frame.payload, "reason"));
        break;
      }
      buffer.take(now, frame);
    }
    if (mode_ == Mode::Receiving) buffer.settle(now);
    if (buffer.spoken) report.heard(now);
    if (lost_at_ && (buffer.spoken > spoken || buffer.ended)) {
      const auto result = results_.find(conn);
      callbacks_.resumed(result == results_.end() ? "" : result->second, now - *lost_at_, now - reconnect_at_,
                    std::max(0.0, now - dry_at));
      lost_at_.reset();
    }
    check_end(now);
  }
  void closed(double now, int conn) {
    if (!opened_at_.erase(conn) || over()) return;
    const bool was_asked = has(asked_, conn);
    forget(conn);
    if (mode_ == Mode::Receiving && asked_.empty()) {
      reconnect(now);
    } else if (mode_ == Mode::Starting && conn == warm_) {
      attempt(now);  // the server may have closed it as the question was on its way
    } else if (mode_ == Mode::Starting && was_asked) {
      next_try_ = now + pause();
    }
  }
  // The server's certificate is not trusted. A turn that has begun retries: a captive portal may have answered.
  void untrusted(double now, int conn) {
    if (mode_ == Mode::Starting && opened_at_.count(conn)) return end(now, NO_WAY);
    closed(now, conn);
  }
  void again(double now, const std::vector<Frame>& frames) {
    if (over()) return;
    for (const Frame& frame : frames) buffer.take(now, frame);
    if (mode_ == Mode::Receiving) buffer.settle(now);
    check_end(now);
  }
  void refused(double now, uint32_t from_id) {
    if (over()) return;
    buffer.refused(now, from_id);
    check_end(now);
  }
  void picture(double now, double pts_ms) {
    if (over()) return;
    const auto drift = buffer.playout.drift_ms(now, pts_ms);
    if (!drift || std::abs(*drift) <= config_.drift_ms) return;
    const double shift_ms = buffer.playout.shift(now, *drift);
    if (shift_ms == 0) return;
    callbacks_.realign(shift_ms);
    handler_.report_realign(shift_ms);
  }
  void tick(double now) {
    if (over()) return;
    if (mode_ == Mode::Receiving) {
      buffer.settle(now);
      check_end(now);
    }
    if (mode_ == Mode::Receiving) {
      if (now >= silent_at()) reconnect(now);
    } else if (over()) {
      return;
    } else if (now >= give_up_at()) {
      end(now, NO_WAY);
    } else if (now >= next_try_) {
      if (mode_ == Mode::Starting) {
        for (const int conn : std::vector<int>(asked_)) drop(conn);
      }
      attempt(now);
    }
  }
  std::optional<double> wake_at() const {
    if (over()) return std::nullopt;
    if (mode_ != Mode::Receiving) return std::min(next_try_, give_up_at());
    const auto gap = buffer.wake_at();
    return gap ? std::min(*gap, silent_at()) : silent_at();
  }

 private:
  enum class Mode { Starting, Receiving, Reconnecting, Over };
  static constexpr int QUICK_TRIES = 5;
  static constexpr double GRACE_SLACK_S = 5.0;  // longest delay until the server notices the disconnect
  static constexpr size_t SPARE_CONNECTIONS = 6;
  static constexpr double HURRY_BEATS = 1.4;  // heartbeats missed, while the player is about to run dry

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
    if (mode_ == Mode::Starting) {
      next_try_ = now + config_.answer_s;
      report.asked(now);
      return handler_.ask(conn, "");
    }
    std::string body = "{\"stream\": \"" + stream + "\", \"last_good_id\": " + std::to_string(buffer.last) +
                       ", \"part\": " + std::to_string(buffer.part) + ", \"rest\": true, \"attempt\": " +
                       std::to_string(asks_) + ", \"outage_ms\": " + ms(now - data_at_) + ", \"rtt_ms\": " + ms(rtt_s_);
    if (buffer.playout.dry_at) body += ", \"due_ms\": " + ms(*buffer.playout.dry_at - now);
    handler_.ask(conn, body + "}");
  }
  void saw_rtt(double took_s) {  // an upper bound of the round trip
    took_s = std::max(0.001, took_s);
    rtt_s_ = rtt_s_ > 0 ? std::min(rtt_s_, took_s) : took_s;
  }
  double give_up_at() const { return data_at_ + config_.give_up_s.value_or(turn_headers_.grace_s + GRACE_SLACK_S); }
  // When the connection counts as lost without data: sooner if the player would run dry meanwhile.
  double silent_at() const {
    const double at = data_at_ + std::max(config_.silence_s, 4 * turn_headers_.heartbeat_s);
    if (!buffer.playout.dry_at) return at;
    const double hurry_s = std::max(config_.hurry_s, HURRY_BEATS * turn_headers_.heartbeat_s);
    return std::min(at, std::max(data_at_ + hurry_s, *buffer.playout.dry_at - (2 + handshake_rtts_) * rtt_s_));
  }
  void reconnect(double now) {
    mode_ = Mode::Reconnecting;
    buffer.pause();
    if (!lost_at_) {
      lost_at_ = data_at_;
      reconnect_at_ = now;
      results_.clear();
    }
    tries_ = 0;
    attempt(now);
  }
  // Send the request on an idle connection, else on the next established. The first attempt opens two: one may be lost.
  void attempt(double now) {
    tries_++;
    next_try_ = now + pause();
    may_ask_ = true;
    if (!idle_.empty()) {
      const int conn = idle_.front();
      idle_.erase(idle_.begin());
      ask(now, conn);
    }
    for (int i = 0; i < (tries_ == 1 ? 2 : 1); i++) {
      // The newest request wins at the server; of the other connections the oldest is the least likely to answer.
      std::vector<int> spare;
      for (const auto& [conn, at] : opened_at_) {
        if (asked_.empty() || conn != asked_.back()) spare.push_back(conn);
      }
      if (spare.size() >= SPARE_CONNECTIONS) drop(spare.front());
      opened_at_[conns_] = now;
      handler_.open(conns_++);
    }
  }
  // Retry backoff: 1.5 x RTT, doubled with each attempt after the fifth, with a jitter of +-25 %.
  double pause() {
    double pause_s = rtt_s_ > 0 ? std::min(1.0, std::max(0.1, 1.5 * rtt_s_)) : 0.3;
    pause_s = std::min(config_.backoff_s, pause_s * std::pow(2.0, std::max(0, tries_ - QUICK_TRIES)));
    return pause_s * (0.75 + 0.5 * jitter_());
  }
  // Heartbeats of the lost connection end no outage: its speech may be held up behind a loss.
  bool is_return(int conn, const std::vector<Frame>& frames) const {
    return std::any_of(frames.begin(), frames.end(),
                       [&](const Frame& frame) { return frame.kind != IDLE || results_.count(conn); });
  }
  // Data came on a connection: drop those asked before it and those not asked yet.
  void receive(double now, int conn) {
    mode_ = Mode::Receiving;
    data_at_ = now;
    const std::vector<int> needed(std::find(asked_.begin(), asked_.end(), conn), asked_.end());
    for (const auto& [other, at] : std::map<int, double>(opened_at_)) {
      if (!has(needed, other)) drop(other);
    }
  }
  void superseded(double now, int conn, const std::string& why) {
    if (why == "superseded" && conn == last_asked_) return end(now, why);  // else another request of this client took over
    drop(conn);
    if (asked_.empty()) reconnect(now);
  }
  void check_end(double now) {
    if (buffer.ended && !over()) end(now, *buffer.ended);
  }
  void forget(int conn) {
    for (auto* conns : {&asked_, &idle_}) conns->erase(std::remove(conns->begin(), conns->end(), conn), conns->end());
  }
  void drop(int conn) {
    if (!opened_at_.erase(conn)) return;
    forget(conn);
    handler_.drop(conn);
  }
  void end(double now, const std::string& why) {
    mode_ = Mode::Over;
    report.end(now);
    for (const auto& [conn, at] : std::map<int, double>(opened_at_)) drop(conn);
    handler_.ended(why);
  }

  TurnCallbacks& callbacks_;
  SessionHandler& handler_;
  const Config config_;
  std::function<double()> jitter_;
  const int handshake_rtts_;
  Mode mode_ = Mode::Starting;
  // Start time of every open connection; of those, the connected ones without a request, and those with one.
  std::map<int, double> opened_at_;
  std::vector<int> idle_, asked_;
  std::map<int, std::string> results_;
  double asked_at_ = 0, next_try_ = 0, rtt_s_ = 0, data_at_ = 0, reconnect_at_ = 0;
  TurnHeaders turn_headers_;
  std::optional<double> lost_at_;
  bool may_ask_ = true;
  int last_asked_ = -1, warm_ = -1, asks_ = 0, conns_ = 0, tries_ = 0;
};

// ---- HTTP -----------------------------------------------------------------------------------------------------------

// Parses one response as it arrives: feed() returns bytes of the body. Throws std::runtime_error for an invalid response.
// curl_easy_recv() gives the bytes of a connection and leaves HTTP to its caller.
class ResponseParser {
 public:
  int status = 0;  // 0 before the head
  Headers headers;
  bool done = false;
  // Whether all of it was read, its trailer included, after which another request may follow.
  bool complete() const { return done && (!chunked_ || trailed_); }
  // Whether nothing can be asked on the connection after it.
  bool last() const { return closes_ || !rest_.empty(); }

  std::string feed(const std::string& data) {
    rest_ += data;
    if (done) {
      skip_trailer();
      return "";
    }
    while (!status) {
      if (!read_head()) return "";
    }
    std::string body;
    if (chunked_) {
      size_t at = 0;
      while (!done && read_chunk(at, body)) {
      }
      rest_.erase(0, at);
      if (done) skip_trailer();
      return body;
    }
    body.swap(rest_);
    if (left_) {
      body.resize(static_cast<size_t>(std::min<uint64_t>(body.size(), *left_)));
      *left_ -= body.size();
      done = *left_ == 0;
    }
    return body;
  }

 private:
  static constexpr size_t MAX_HEAD = 65536, MAX_CHUNK_LINE = 1024, MAX_DIGITS = 15;
  static constexpr int MAX_INFORMATIONAL = 20;

  // Parse up to 15 digits, each below `base`; throws for anything else.
  static uint64_t number(const std::string& text, unsigned base) {
    uint64_t value = 0;
    if (text.empty() || text.size() > MAX_DIGITS) throw std::runtime_error("an invalid length");
    for (const char c : text) {
      const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a' + 10)
                             : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A' + 10)
                                                    : base;
      if (digit >= base) throw std::runtime_error("an invalid length");
      value = value * base + digit;
    }
    return value;
  }
  // Read a piece of a chunk, or the line with the size of the next; false when more bytes are needed.
  bool read_chunk(size_t& at, std::string& body) {
    if (*left_) {
      const size_t take = static_cast<size_t>(std::min<uint64_t>(rest_.size() - at, *left_));
      body.append(rest_, at, take);
      at += take;
      *left_ -= take;
      after_chunk_ = *left_ == 0;
      return after_chunk_;
    }
    if (after_chunk_) {
      if (rest_.size() - at < 2) return false;
      if (rest_.compare(at, 2, "\r\n") != 0) throw std::runtime_error("a chunk without an end");
      at += 2;
      after_chunk_ = false;
    }
    const size_t end = rest_.find("\r\n", at);
    if ((end == std::string::npos ? rest_.size() : end) - at > MAX_CHUNK_LINE) throw std::runtime_error("a chunk without a size");
    if (end == std::string::npos) return false;
    const std::string line = rest_.substr(at, end - at);
    left_ = number(line.substr(0, line.find_first_of("; \t")), 16);
    at = end + 2;
    done = *left_ == 0;
    return true;
  }
  void skip_trailer() {
    for (size_t end = 0; chunked_ && !trailed_ && (end = rest_.find("\r\n")) != std::string::npos; rest_.erase(0, end + 2)) {
      trailed_ = end == 0;
    }
  }
  // Read the head; false when more bytes are needed, or when it was one of status 1xx.
  bool read_head() {
    const size_t end = rest_.find("\r\n\r\n");
    if ((end == std::string::npos ? rest_.size() : end) > MAX_HEAD) throw std::runtime_error("a head without an end");
    if (end == std::string::npos) return false;
    if (rest_.compare(0, 7, "HTTP/1.") != 0 || end < 12 || rest_[8] != ' ' || (end > 12 && rest_[12] != ' ' && rest_[12] != '\r'))
      throw std::runtime_error("not an HTTP response");
    const int code = static_cast<int>(number(rest_.substr(9, 3), 10));
    if (code < 100 || code > 999) throw std::runtime_error("not an HTTP response");
    const bool http_1_0 = rest_[7] == '0';
    Headers found;
    size_t at = rest_.find("\r\n");
    while (at < end) {
      const size_t next = rest_.find("\r\n", at + 2);
      const std::string line = rest_.substr(at + 2, next - at - 2);
      const size_t colon = line.find(':');
      if (colon != std::string::npos) {
        const size_t value = line.find_first_not_of(" \t", colon + 1);
        found[lower(line.substr(0, colon))] =
            value == std::string::npos ? "" : line.substr(value, line.find_last_not_of(" \t") - value + 1);
      }
      at = next;
    }
    rest_.erase(0, end + 4);
    if (code < 200) {
      if (++informational_ > MAX_INFORMATIONAL) throw std::runtime_error("too many responses of status 1xx");
      return read_head();
    }
    const auto encoding = found.find("transfer-encoding");
    const auto length = found.find("content-length");
    if (encoding != found.end()) {
      if (lower(encoding->second) != "chunked") throw std::runtime_error("an unknown transfer encoding");
      chunked_ = true;
      left_ = 0;
    } else if (code == 204 || code == 304) {
      left_ = 0;
    } else if (length != found.end()) {
      left_ = number(length->second, 10);
    }
    done = left_ && *left_ == 0 && !chunked_;
    const auto connection = found.find("connection");
    closes_ = http_1_0 || (connection != found.end() && lower(connection->second).find("close") != std::string::npos);
    headers = std::move(found);
    status = code;
    return true;
  }
  std::string rest_;
  bool chunked_ = false, after_chunk_ = false, closes_ = false, trailed_ = false;
  int informational_ = 0;
  std::optional<uint64_t> left_;  // bytes of the chunk or the body still to come; none: until the connection ends
};

// ---- client ---------------------------------------------------------------------------------------------------------

// Connects to one server; speak() receives one turn to its end. `headers` ("Name: value\r\n" each) go with every request.
// For https the server's certificate is verified against the system's authorities, or against those in `ca_file` alone (PEM).
// Throws std::invalid_argument for a URL that is neither http nor https.
//
// The client reports what it plays, and keeps a connection for the next turn for a while (Config): call tend() between turns.
class Client : private SessionHandler {
 public:
  Client(const std::string& url, TurnCallbacks& callbacks, Config config = {}, std::string headers = "", std::string ca_file = "")
      : callbacks_(callbacks), config_(config), headers_(std::move(headers)), ca_file_(std::move(ca_file)) {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    const std::unique_ptr<CURLU, void (*)(CURLU*)> parts(curl_url(), curl_url_cleanup);
    if (ready != CURLE_OK || !parts || curl_url_set(parts.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
      throw std::invalid_argument("expected http://host:port or https://host:port, got " + url);
    const std::string scheme = part(parts.get(), CURLUPART_SCHEME), path = part(parts.get(), CURLUPART_PATH);
    const std::string port = part(parts.get(), CURLUPART_PORT);
    if (scheme != "http" && scheme != "https")
      throw std::invalid_argument("expected http://host:port or https://host:port, got " + url);
    tls_ = scheme == "https";
    host_ = part(parts.get(), CURLUPART_HOST) + (port.empty() ? "" : ":" + port);
    base_ = path.substr(0, path.find_last_not_of('/') + 1);
    origin_ = scheme + "://" + host_ + "/";
  }
  Client(const std::string& host, uint16_t port, TurnCallbacks& callbacks, Config config = {}, std::string headers = "",
         std::string ca_file = "")
      : Client((host.find("://") == std::string::npos ? "http://" : "") +
                   (host.find("://") == std::string::npos && host.find(':') != std::string::npos && host[0] != '['
                        ? "[" + host + "]"
                        : host) +
                   ":" + std::to_string(port),
               callbacks, config, std::move(headers), std::move(ca_file)) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() override { connections_.clear(); }

  // Request one turn (`chat` is the body of a chat request, with "stream": true) and receive it. Returns "done", or why it
  // ended before. `idle` is called at least every 100 ms: return false to stop the turn. What the callbacks throw comes out
  // here, and the server is told to stop. A connection that is dropped while its name is resolved may block for seconds.
  std::string speak(const std::string& chat, const std::function<bool()>& idle = [] { return true; }) {
    auto warm = take_warm();
    connections_.clear();
    dead_.clear();
    silent_.clear();
    good_.clear();
    reason_.clear();
    error_.clear();
    opened_ = 0;
    resolved_ = false;
    // A new multi handle has an empty name cache: the name is resolved once a turn.
    multi_ = std::shared_ptr<CURLM>(curl_multi_init(), [](CURLM* multi) {
      if (multi) curl_multi_cleanup(multi);
    });
    if (!multi_) throw std::runtime_error("libcurl cannot be used");
    std::mt19937 random{std::random_device{}()};
    std::uniform_real_distribution<double> jitter(0, 1);
    chat_ = chat;
    session_ = std::make_unique<Session>(callbacks_, static_cast<SessionHandler&>(*this), config_,
                                         [&] { return jitter(random); }, tls_ ? 2 : 1);
    keep_until_.reset();
    refused_ = false;
    retry_at_ = 0;
    try {
      const bool is_warm = warm != nullptr;
      if (is_warm) connections_[0] = std::move(warm);
      session_->start(now(), is_warm);
      while (!session_->over()) {
        if (!idle()) {
          hang_up();
          reason_ = "hung up";
          break;
        }
        poll_once(std::min(now() + 0.1, session_->wake_at().value_or(0)));
        session_->tick(now());
        report_if_due();
      }
    } catch (...) {
      hang_up();
      throw;
    }
    clear();
    return reason_;
  }
  // Call it between turns, about once a second, from the thread of speak(): it reports what is still being played, and keeps
  // a connection for the next turn. It does not wait. Returns false once it has nothing left to do before the next turn.
  bool tend() {
    if (!session_) return false;
    poll_once(now());
    if (report_if_due()) return true;
    const double at = now();
    if (!keep_until_) {
      keep_until_ = at + config_.warm_s;
      ping_at_ = connections_.count(WARM) ? at + ping_s_ : at;
    }
    if (refused_ || at >= *keep_until_) {
      connections_.erase(WARM);
      return false;
    }
    const auto found = connections_.find(WARM);
    if (found != connections_.end() && found->second->busy) return true;
    const bool lost = found == connections_.end() || moved(found->second->fd);
    if (lost) connections_.erase(WARM);
    if ((lost && at >= retry_at_) || at >= ping_at_) {
      ask_warm(request("GET", "/health", "", "", "keep-alive"), PING_S, false);
      ping_at_ = at + ping_s_;
      retry_at_ = at + LOOK_S;
      poll_once(at);
    }
    return true;
  }
  // Why no connection came about, after speak() has returned "no way to the server"; else empty.
  std::string error() const { return reason_ == NO_WAY ? error_ : ""; }
  // Report that the picture of `pts_ms` is shown now (from `idle`, or from the callbacks).
  void picture(double pts_ms) {
    if (session_) session_->picture(now(), pts_ms);
  }
  const Session* session() const { return session_.get(); }
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  struct Connection {  // numbers of the session are >= 0, the others belong to short requests
    Client* client = nullptr;
    CURL* easy = nullptr;  // null while it waits for another connection to resolve the name
    curl_socket_t fd = CURL_SOCKET_BAD;
    std::shared_ptr<CURLM> multi;
    bool connected = false, unfiltered = false, skipped = false, unread = false;
    bool busy = false, reporting = false;  // of the warm one: a request is under way, and it is a report
    size_t received = 0;                   // of its answer, bytes
    std::optional<CURLcode> failed;
    std::string only;             // the address to connect to; empty for any that is not in silent_
    std::set<std::string> tried;  // addresses for which a socket was opened
    std::string out;
    ResponseParser response;
    Decoder decoder;
    std::optional<uint32_t> rtx;
    double until = 0;  // timeout of a short request
    std::optional<double> echo_at;  // when the question's last byte is to follow
    char error[CURL_ERROR_SIZE] = "";

    Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() { disconnect(); }
    void disconnect() {
      if (!easy) return;
      // An older libcurl (7.81, as Ubuntu 22.04 has it) leaves such a connection open for as long as its multi handle lives.
      if (connected && curl_version_info(CURLVERSION_NOW)->version_num < 0x075800) ::shutdown(fd, SHUT_RDWR);
      curl_multi_remove_handle(multi.get(), easy);
      curl_easy_cleanup(easy);
      easy = nullptr;
    }
  };

  static std::string part(CURLU* url, CURLUPart what) {
    char* found = nullptr;
    if (curl_url_get(url, what, &found, 0) != CURLUE_OK) return "";
    const std::string text = found;
    curl_free(found);
    return text;
  }

  // The first attempt of a turn, two connections, goes to the address that connected last. Each further one skips the
  // addresses on which an earlier one still waits. libcurl tries the families beside each other, but not the addresses of
  // one family.
  void open(int conn) override {
    if (opened_ >= 2) {
      for (const auto& [number, other] : connections_) {
        if (!other->connected) silent_.insert(other->tried.begin(), other->tried.end());
      }
    }
    begin(conn, opened_ < 2 ? good_ : "");
    opened_++;
  }
  void ask(int conn, const std::string& resume) override {
    Connection& asked = *connections_[conn];
    if (!resume.empty()) {
      asked.out = request("POST", "/v1/resume", resume);
      return;
    }
    asked.out = request("POST", "/v1/chat/completions", chat_ + ECHO, "X-Omni-Padding: 1\r\n");
    asked.out.pop_back();
    asked.echo_at = now() + ECHO_S;
  }
  void drop(int conn) override { dead_.push_back(conn); }
  void rtx(uint32_t from_id, uint32_t count) override {
    const std::string body = "{\"stream\": \"" + session_->stream + "\", \"from_id\": " + std::to_string(from_id) +
                             ", \"count\": " + std::to_string(count) + "}";
    begin_short(request("POST", "/v1/rtx", body)).rtx = from_id;
  }
  void report_realign(double shift_ms) override {
    const std::string body = "{\"stream\": \"" + session_->stream + "\", \"shift_ms\": " + thousandths(shift_ms) + "}";
    begin_short(request("POST", "/v1/realign", body));
  }
  void ended(const std::string& reason) override { reason_ = reason; }

  // What follows the question: its acknowledgement tells TCP of a lost question before the timeout.
  static constexpr char ECHO = '\n';
  static constexpr double ECHO_S = 0.01;    // after the question
  static constexpr double SHORT_S = 5.0;    // timeout of a short request
  static constexpr double HANG_UP_S = 1.0;  // timeout of the request that stops a turn
  static constexpr int WARM = -1;           // the connection that is kept for the next turn
  static constexpr double PING_S = 2.0;     // timeout of what keeps it open; without an answer it is replaced
  static constexpr double LOOK_S = 1.0;     // between two attempts to replace it
  static constexpr size_t MAX_ANSWER = 65536;

  // Close all connections but the warm one.
  void clear() {
    for (auto it = connections_.begin(); it != connections_.end();) it = it->first == WARM ? ++it : connections_.erase(it);
    dead_.clear();
  }
  // Report what is due; return whether more will be.
  bool report_if_due() {
    TurnReport& report = session_->report;
    if (!config_.report || !report.due_at) return false;
    const auto found = connections_.find(WARM);
    if (now() < *report.due_at || (found != connections_.end() && found->second->busy)) return true;
    ask_warm(request("POST", "/omniwatch/report", report.body(now()), "", "keep-alive"), SHORT_S, true);
    return true;
  }
  void ask_warm(std::string out, double timeout_s, bool reporting) {
    if (!connections_.count(WARM)) begin(WARM, good_);
    Connection& warm = *connections_[WARM];
    warm.response = {};
    warm.received = 0;
    warm.out = std::move(out);
    warm.until = now() + timeout_s;
    warm.busy = true;
    warm.reporting = reporting;
  }
  // The warm connection's request was answered, or, with status 0, not.
  void answered(Connection& warm, int status) {
    if (!warm.busy) return;
    warm.busy = false;
    warm.until = std::numeric_limits<double>::infinity();
    if (warm.reporting) session_->report.answered(now(), status);
    if (!status) return;
    answered_at_ = now();
    refused_ = warm.response.last();
    ping_s_ = config_.warm_ping_s;
    const auto keep_alive = warm.response.headers.find("keep-alive");
    if (keep_alive == warm.response.headers.end()) return;
    const size_t at = lower(keep_alive->second).find("timeout=");
    if (at == std::string::npos) return;
    const std::string stated = keep_alive->second.substr(at + 8);
    const auto timeout_s = whole(stated.substr(0, stated.find_first_not_of("0123456789")));
    if (timeout_s) ping_s_ = std::max(1.0, std::min(ping_s_, *timeout_s / 3.0));
  }
  // The connection for the next question; none where none is believed to reach the server.
  std::unique_ptr<Connection> take_warm() {
    const auto found = connections_.find(WARM);
    if (found == connections_.end()) return nullptr;
    auto warm = std::move(found->second);
    connections_.erase(found);
    char byte = 0;
    size_t size = 0;
    const bool ready = warm->connected && !warm->busy && now() - answered_at_ <= ping_s_ + PING_S && !moved(warm->fd);
    if (!ready || curl_easy_recv(warm->easy, &byte, 1, &size) != CURLE_AGAIN) return nullptr;
    warm->response = {};
    warm->until = 0;
    return warm;
  }
  // Whether the client would reach the server from another address than the connection's: nothing is sent for that.
  static bool moved(curl_socket_t fd) {
    sockaddr_storage peer{}, ours{}, now_ours{};
    socklen_t peer_size = sizeof peer, size = sizeof ours, now_size = sizeof now_ours;
    if (fd == CURL_SOCKET_BAD || ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&ours), &size) != 0)
      return true;
    const int probe = ::socket(peer.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return false;
    const bool routed = ::connect(probe, reinterpret_cast<sockaddr*>(&peer), peer_size) == 0 &&
                        ::getsockname(probe, reinterpret_cast<sockaddr*>(&now_ours), &now_size) == 0;
    ::close(probe);
    return !routed || address(ours) != address(now_ours);
  }
  static std::string address(const sockaddr_storage& of) {
    if (of.ss_family == AF_INET) {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(of);
      return std::string(reinterpret_cast<const char*>(&v4.sin_addr), sizeof v4.sin_addr);
    }
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(of);
    return std::string(reinterpret_cast<const char*>(&v6.sin6_addr), sizeof v6.sin6_addr);
  }

  void hang_up() {
    clear();
    session_->report.stop();
    if (session_->over() || session_->stream.empty()) return;
    // Not in the URL, which servers and proxies log: who knows the id may hear the turn.
    begin_short(request("DELETE", "/v1/resume", "", "X-Omni-Resume: " + session_->stream + "\r\n"));
    const int number = next_short_ + 1;
    const double until = now() + HANG_UP_S;
    while (connections_.count(number) && now() < until) poll_once(until);
    clear();
  }
  Connection& begin_short(std::string out) {
    Connection& connection = begin(next_short_--, good_);
    connection.until = now() + SHORT_S;
    connection.out = std::move(out);
    return connection;
  }
  std::string request(const char* method, const std::string& path, const std::string& body, const std::string& more = "",
                      const std::string& connection = "close") const {
    return std::string(method) + " " + base_ + path + " HTTP/1.1\r\nHost: " + host_ + "\r\nConnection: " + connection +
           "\r\nAccept: " + accept() + "\r\nContent-Type: application/json\r\n" + headers_ + more +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  std::string accept() const {
    const std::string frames = "application/vnd.omniwatch.frames";
    return HAS_OPUS && config_.opus ? frames + ";codec=opus;bitrate=" + std::to_string(config_.opus_bitrate) : frames;
  }
  Connection& begin(int number, std::string only) {
    auto connection = std::make_unique<Connection>();
    connection->client = this;
    connection->only = std::move(only);
    Connection& begun = *connection;
    connections_[number] = std::move(connection);
    return begun;
  }
  // Start connecting where no other connection is resolving the name.
  void start_waiting() {
    for (const auto& [number, connection] : connections_) {
      const bool resolving = !resolved_ && std::any_of(connections_.begin(), connections_.end(), [](const auto& other) {
        return other.second->easy && !other.second->connected && !other.second->failed;
      });
      if (!connection->easy && !connection->failed && !resolving) start(*connection);
    }
  }
  void start(Connection& connection) {
    CURL* easy = connection.easy = curl_easy_init();
    if (!easy) {
      connection.failed = CURLE_OUT_OF_MEMORY;
      return;
    }
    connection.skipped = false;
    curl_easy_setopt(easy, CURLOPT_URL, origin_.c_str());
    curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, -1L);
    curl_easy_setopt(easy, CURLOPT_HAPPY_EYEBALLS_TIMEOUT_MS, 250L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    if (!ca_file_.empty()) {
      curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file_.c_str());
      curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);
    }
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, connection.error);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, &connection);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, &connection);
    connection.multi = multi_;
    if (curl_multi_add_handle(multi_.get(), easy) != CURLM_OK) connection.failed = CURLE_FAILED_INIT;
  }
  static curl_socket_t open_socket(void* data, curlsocktype, curl_sockaddr* to) {
    Connection& connection = *static_cast<Connection*>(data);
    Client& client = *connection.client;
    client.resolved_ = true;
    const std::string address(reinterpret_cast<const char*>(&to->addr), to->addrlen);
    const bool wanted = connection.only.empty() ? !client.silent_.count(address) : connection.only == address;
    if (!wanted && !connection.unfiltered) {
      connection.skipped = true;
      return CURL_SOCKET_BAD;
    }
    connection.tried.insert(address);
    const int fd = ::socket(to->family, to->socktype, to->protocol);
    if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
  }

  // Wait for something on the connections, until `until`, and process it.
  void poll_once(double until) {
    start_waiting();
    std::vector<curl_waitfd> polls;
    for (const auto& [number, connection] : connections_) {
      if (connection->failed || connection->unread) until = 0;
      if (connection->connected) {
        const int events = CURL_WAIT_POLLIN | (connection->out.empty() ? 0 : CURL_WAIT_POLLOUT);
        polls.push_back({connection->fd, static_cast<short>(events), 0});
      }
      if (number < 0) until = std::min(until, connection->until);
      if (connection->echo_at) until = std::min(until, *connection->echo_at);
    }
    const int wait_ms = static_cast<int>(std::ceil(std::min(1000.0, std::max(0.0, until - now()) * 1000)));
    curl_multi_poll(multi_.get(), polls.data(), static_cast<unsigned>(polls.size()), wait_ms, nullptr);
    int running = 0, left = 0;
    curl_multi_perform(multi_.get(), &running);
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      char* found = nullptr;
      if (message->msg != CURLMSG_DONE) continue;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &found);
      Connection& connection = *reinterpret_cast<Connection*>(found);
      if (message->data.result == CURLE_OK) {
        curl_easy_getinfo(message->easy_handle, CURLINFO_ACTIVESOCKET, &connection.fd);
      } else {
        connection.failed = message->data.result;
      }
    }
    std::vector<int> numbers;
    for (const auto& [number, connection] : connections_) numbers.push_back(number);
    for (const int number : numbers) {
      if (std::find(dead_.begin(), dead_.end(), number) != dead_.end()) continue;
      Connection& connection = *connections_.at(number);
      if (connection.failed && connection.skipped && connection.tried.empty() && !connection.unfiltered) {
        // Every address of the name was skipped: use any.
        silent_.clear();
        connection.disconnect();
        connection.failed.reset();
        connection.unfiltered = true;
      } else if (connection.failed) {
        lose(number, connection);
      } else if ((number < 0 && now() >= connection.until) || !exchange(number, connection)) {
        if (number >= 0) session_->closed(now(), number);
        dead_.push_back(number);
      }
    }
    for (const int number : dead_) {
      const auto found = connections_.find(number);
      if (found == connections_.end()) continue;
      if (number == WARM) answered(*found->second, 0);
      connections_.erase(found);
    }
    dead_.clear();
  }
  void lose(int number, const Connection& connection) {
    const CURLcode why = *connection.failed;
    error_ = connection.error[0] ? connection.error : curl_easy_strerror(why);
    const bool untrusted = why == CURLE_PEER_FAILED_VERIFICATION || why == CURLE_SSL_CACERT_BADFILE;
    if (number >= 0 && untrusted) {
      session_->untrusted(now(), number);
    } else if (number >= 0) {
      session_->closed(now(), number);
    }
    dead_.push_back(number);
  }
  // Send and receive what is possible; false at the end of the connection.
  bool exchange(int number, Connection& connection) {
    if (connection.fd == CURL_SOCKET_BAD) return true;
    if (!connection.connected) {
      connection.connected = true;
      sockaddr_storage peer{};
      socklen_t size = sizeof peer;
      if (::getpeername(connection.fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0)
        good_.assign(reinterpret_cast<const char*>(&peer), size);
      silent_.clear();
      opened_ = 0;
      if (number >= 0) session_->opened(now(), number);
    }
    if (connection.echo_at && now() >= *connection.echo_at) {
      connection.out += ECHO;
      connection.echo_at.reset();
    }
    if (!connection.out.empty()) {
      size_t sent = 0;
      const CURLcode result = curl_easy_send(connection.easy, connection.out.data(), connection.out.size(), &sent);
      if (result != CURLE_OK && result != CURLE_AGAIN) return false;
      if (result == CURLE_OK) connection.out.erase(0, sent);
    }
    // TLS may hold bytes that no poll reports: read until there are none, or look again at once.
    connection.unread = false;
    for (int reads = 0; std::find(dead_.begin(), dead_.end(), number) == dead_.end(); reads++) {
      if (reads == MAX_READS) {
        connection.unread = true;
        return true;
      }
      char data[16384];
      size_t size = 0;
      const CURLcode result = curl_easy_recv(connection.easy, data, sizeof data, &size);
      if (result == CURLE_AGAIN) return true;
      // The server has closed the connection that was kept, and would the next.
      if (number == WARM && !connection.busy && result == CURLE_OK) refused_ = true;
      if (result != CURLE_OK || size == 0) return false;
      if (!receive(number, connection, std::string(data, size))) return false;
    }
    return true;
  }
  // Process received bytes; false when nothing more is to come on the connection.
  bool receive(int number, Connection& connection, const std::string& data) {
    if (number == WARM) return receive_warm(connection, data);
    const bool had_head = connection.response.status != 0;
    std::string body;
    if (!valid([&] { body = connection.response.feed(data); })) return false;
    const int status = connection.response.status;
    if (!status) return true;
    const bool framed = status == 200 || status == 206;
    if (!had_head && !framed) error_ = "the server answered with status " + std::to_string(status);
    if (number >= 0 && !had_head) session_->head(now(), number, status, connection.response.headers);
    std::vector<Frame> frames;
    if (framed && !valid([&] { frames = connection.decoder.feed(body); })) return false;
    if (number >= 0) {
      if (framed) session_->data(now(), number, frames);
    } else if (connection.rtx) {
      if (status == 206) session_->again(now(), frames);
      if (status == 404 || status == 410 || status == 416) session_->refused(now(), *connection.rtx);
    }
    return !connection.response.done;
  }
  bool receive_warm(Connection& warm, const std::string& data) {
    warm.received += data.size();
    if (!warm.busy || warm.received > MAX_ANSWER || !valid([&] { warm.response.feed(data); })) return false;
    if (!warm.response.complete()) return true;
    answered(warm, warm.response.status);
    return !warm.response.last();
  }
  // Run a parser; false for invalid bytes, after which a connection counts as closed.
  bool valid(const std::function<void()>& parse) {
    try {
      parse();
      return true;
    } catch (const std::runtime_error& error) {
      error_ = error.what();
      return false;
    }
  }

  static constexpr int MAX_READS = 64;  // of one connection in a row

  std::string host_, base_, origin_;  // host with its port as in the URL; path before all paths; what libcurl connects to
  bool tls_ = false;
  TurnCallbacks& callbacks_;
  const Config config_;
  const std::string headers_, ca_file_;
  std::string chat_, reason_, error_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<CURLM> multi_;
  std::map<int, std::unique_ptr<Connection>> connections_;
  std::vector<int> dead_;
  std::set<std::string> silent_;  // addresses on which a connection waited in vain
  std::string good_;              // the address connected to last
  size_t opened_ = 0;             // connections of the session since then
  bool resolved_ = false;
  int next_short_ = WARM - 1;
  bool refused_ = false;  // the server does not keep connections
  double ping_s_ = 15, ping_at_ = 0, retry_at_ = 0, answered_at_ = 0;
  std::optional<double> keep_until_;
};

}  // namespace omniwatch
