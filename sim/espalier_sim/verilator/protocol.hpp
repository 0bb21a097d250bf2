// Reports of broken rules, seeded stalls, and the checks of channels that the accelerator drives.
#pragma once
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

// Collects the first few violations as text, one line each, and counts all of them.
class Report {
public:
    void operator()(uint64_t cycle, const std::string& message) {
        if (++count_ <= kept) text_ += "cycle " + std::to_string(cycle) + ": " + message + "\n";
    }
    uint64_t count() const { return count_; }
    const std::string& text() const { return text_; }
    void clear() { count_ = 0; text_.clear(); }

private:
    static constexpr uint64_t kept = 20;
    uint64_t count_ = 0;
    std::string text_;
};

inline std::string hex(uint64_t value) {
    char buffer[24];
    std::snprintf(buffer, sizeof buffer, "0x%llx", static_cast<unsigned long long>(value));
    return buffer;
}

// Decides cycle by cycle whether a channel stalls. The share of stalled cycles changes every 512 decisions,
// so that one run sees free, busy and nearly blocked channels. Without a seed it never stalls.
class Stall {
public:
    void seed(uint64_t seed, uint64_t channel) {
        enabled_ = seed != 0;
        state_ = (seed + 1) * 0x9E3779B97F4A7C15ull ^ (channel + 1) * 0xD1B54A32D192ED03ull;
        if (state_ == 0) state_ = 1;
        left_ = 0;
    }
    bool operator()() {
        if (!enabled_) return false;
        if (left_-- == 0) {
            static constexpr uint32_t shares[4] = {0, 64, 128, 230};  // of 256
            share_ = shares[next() & 3];
            left_ = 511;
        }
        return (next() & 255) < share_;
    }

private:
    uint64_t next() {  // xorshift64*
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return (state_ * 0x2545F4914F6CDD1Dull) >> 32;
    }
    uint64_t state_ = 1;
    uint32_t share_ = 0, left_ = 0;
    bool enabled_ = false;
};

// The two rules of a sender: VALID stays until READY, and the payload does not change meanwhile.
template <size_t Words>
class Handshake {
public:
    using Payload = std::array<uint32_t, Words>;
    explicit Handshake(const char* channel) : channel_(channel) {}
    void observe(bool valid, bool ready, const Payload& payload, uint64_t cycle, Report& report) {
        if (waiting_ && !valid) report(cycle, std::string(channel_) + ": VALID fell before READY");
        if (waiting_ && valid && payload != held_)
            report(cycle, std::string(channel_) + ": payload changed while VALID waited for READY");
        waiting_ = valid && !ready;
        held_ = payload;
        valid_ = valid;
        ready_ = ready;
    }
    void reset() { waiting_ = valid_ = ready_ = false; }
    std::string state() const {
        return std::string(channel_) + " valid " + (valid_ ? "1" : "0") + " ready " + (ready_ ? "1" : "0");
    }

private:
    const char* channel_;
    bool waiting_ = false, valid_ = false, ready_ = false;
    Payload held_{};
};
