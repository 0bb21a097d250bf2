// AXI4 slave: DDR with latency, outstanding bursts, stalls, access rights and protocol checks.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "protocol.hpp"

struct Range {
    uint64_t base = 0, bytes = 0;
    bool holds(uint64_t address, uint64_t count) const {
        return address >= base && count <= bytes && address - base <= bytes - count;
    }
    bool touches(uint64_t address, uint64_t count) const {
        return bytes != 0 && address < base + bytes && base < address + count;
    }
};

// Ranges that may be accessed: a burst must lie in one of them.
class Ranges {
public:
    void set(const Range& only) { parts_.assign(1, only); }
    void add(const Range& range) { parts_.push_back(range); }
    void remove(uint64_t base) {
        for (size_t i = parts_.size(); i-- > 0;)
            if (parts_[i].base == base) parts_.erase(parts_.begin() + i);
    }
    bool holds(uint64_t address, uint64_t count) const {
        for (const Range& range : parts_)
            if (range.holds(address, count)) return true;
        return false;
    }

private:
    std::vector<Range> parts_;
};

struct MemorySettings {
    uint64_t base, bytes;
    uint32_t latency_low, latency_high;  // cycles from an accepted address (or last write beat) to its answer
    uint32_t beat_cycles;                // from a beat to the next of the same direction, at least
    uint32_t pause_cycles, pause_every;  // no beat moves in the first ones of so many cycles; 0: never a pause
    uint64_t seed;                       // of the latencies
    uint32_t outstanding;                // bursts accepted before the oldest is finished, reads and writes each
    uint32_t burst_beats;                // longest burst that the accelerator may ask for

    // The same as espalier.arch.ddr: splitmix64 of seed and number of the burst.
    uint32_t latency(uint64_t burst) const {
        uint64_t value = seed * 0x9E3779B97F4A7C15ull + (burst + 1) * 0xD1B54A32D192ED03ull;
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ull;
        value = (value ^ value >> 27) * 0x94D049BB133111EBull;
        value ^= value >> 31;
        return latency_low + uint32_t(value >> 32) % (latency_high - latency_low + 1);
    }
    bool pauses(uint64_t now) const { return pause_every && now % pause_every < pause_cycles; }
};

template <typename Top>
class Memory {
public:
    static constexpr uint32_t beat_bytes = 16;

    explicit Memory(const MemorySettings& settings) : settings_(settings) {
        void* mapped = mmap(nullptr, settings.bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        data_ = mapped == MAP_FAILED ? nullptr : static_cast<uint8_t*>(mapped);
    }
    ~Memory() {
        if (data_) munmap(data_, settings_.bytes);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    uint8_t* data() { return data_; }
    void seed(uint64_t seed) {
        Stall* stalls[] = {&ar_stall_, &r_stall_, &aw_stall_, &w_stall_, &b_stall_};
        for (uint64_t i = 0; i < 5; i++) stalls[i]->seed(seed, i);
    }
    void reset() {
        reads_.clear();
        writes_.clear();
        beats_.clear();
        read_bursts_ = write_bursts_ = next_read_ = next_write_ = 0;
        r_valid_ = b_valid_ = false;
        ar_.reset();
        aw_.reset();
        w_.reset();
    }
    // The next bursts get latencies, and beats pauses, as if the first cycle of all was this one.
    void begin(uint64_t now) {
        read_bursts_ = write_bursts_ = 0;
        first_ = now;
    }
    uint64_t handshakes() const { return handshakes_; }
    Ranges readable, writable;  // accesses outside are violations
    Range faulty;               // accesses are answered with SLVERR
    bool silent = false;        // accepts and answers nothing, as a bus that hangs

    // Before the clock edge: what the memory drives in this cycle. VALID stays until READY.
    void drive(Top& top, uint64_t now) {
        top.m_axi_arready = !silent && reads_.size() < settings_.outstanding && !ar_stall_();
        top.m_axi_awready = !silent && writes_.size() < settings_.outstanding && !aw_stall_();
        const bool paused = settings_.pauses(now - first_);
        top.m_axi_wready = !silent && beats_.size() < beats_ahead && now >= next_write_ && !paused && !w_stall_();
        if (!silent && !r_valid_ && !reads_.empty() && now >= std::max(reads_.front().ready, next_read_) && !paused &&
            !r_stall_()) {
            present_beat(top);
            next_read_ = now + settings_.beat_cycles;
        }
        if (!silent && !b_valid_ && !writes_.empty() && writes_.front().complete && now >= writes_.front().ready &&
            !b_stall_()) {
            b_valid_ = true;
            top.m_axi_bid = writes_.front().id;
            top.m_axi_bresp = writes_.front().response;
        }
        top.m_axi_rvalid = r_valid_;
        top.m_axi_bvalid = b_valid_;
    }

    // After the signals have settled, still before the edge: what is transferred, and whether it was legal.
    void sample(const Top& top, uint64_t now, Report& report) {
        check_handshakes(top, now, report);
        if (r_valid_ && top.m_axi_rready) take_read_beat();
        if (b_valid_ && top.m_axi_bready) {
            b_valid_ = false;
            writes_.pop_front();
            handshakes_++;
        }
        if (top.m_axi_arvalid && top.m_axi_arready) {
            Burst burst{top.m_axi_araddr, top.m_axi_arlen + 1u, 0, now + settings_.latency(read_bursts_++), top.m_axi_arid, 0, false};
            check_burst("AR", burst, top.m_axi_arsize, top.m_axi_arburst, readable, now, report);
            reads_.push_back(burst);
            handshakes_++;
        }
        if (top.m_axi_awvalid && top.m_axi_awready) {
            Burst burst{top.m_axi_awaddr, top.m_axi_awlen + 1u, 0, 0, top.m_axi_awid, 0, false};
            check_burst("AW", burst, top.m_axi_awsize, top.m_axi_awburst, writable, now, report);
            writes_.push_back(burst);
            handshakes_++;
        }
        if (top.m_axi_wvalid && top.m_axi_wready) {
            Beat beat{{}, top.m_axi_wstrb, top.m_axi_wlast != 0};
            for (int i = 0; i < 4; i++) beat.data[i] = top.m_axi_wdata[i];
            beats_.push_back(beat);
            next_write_ = now + settings_.beat_cycles;
            handshakes_++;
        }
        settle_writes(now, report);
    }

    std::string state() const {
        return ar_.state() + ", R valid " + (r_valid_ ? "1" : "0") + " (" + std::to_string(reads_.size()) +
               " read bursts open), " + aw_.state() + ", " + w_.state() + ", B valid " + (b_valid_ ? "1" : "0") +
               " (" + std::to_string(writes_.size()) + " write bursts open, " + std::to_string(beats_.size()) +
               " data beats without address)";
    }

private:
    static constexpr size_t beats_ahead = 64;  // write data taken before its address
    struct Burst {
        uint64_t address;
        uint32_t beats, done;
        uint64_t ready;
        uint32_t id, response;
        bool complete;
    };
    struct Beat {
        uint32_t data[4];
        uint32_t strobe;
        bool last;
    };

    void check_handshakes(const Top& top, uint64_t now, Report& report) {
        auto address = [](uint64_t a, uint32_t len, uint32_t size, uint32_t burst, uint32_t id) {
            return std::array<uint32_t, 4>{uint32_t(a), uint32_t(a >> 32), len, size | burst << 8 | id << 16};
        };
        ar_.observe(top.m_axi_arvalid, top.m_axi_arready,
                    address(top.m_axi_araddr, top.m_axi_arlen, top.m_axi_arsize, top.m_axi_arburst, top.m_axi_arid),
                    now, report);
        aw_.observe(top.m_axi_awvalid, top.m_axi_awready,
                    address(top.m_axi_awaddr, top.m_axi_awlen, top.m_axi_awsize, top.m_axi_awburst, top.m_axi_awid),
                    now, report);
        w_.observe(top.m_axi_wvalid, top.m_axi_wready,
                   {top.m_axi_wdata[0], top.m_axi_wdata[1], top.m_axi_wdata[2], top.m_axi_wdata[3],
                    uint32_t(top.m_axi_wstrb) | uint32_t(top.m_axi_wlast) << 16},
                   now, report);
    }

    void check_burst(const char* channel, Burst& burst, uint32_t size, uint32_t kind, const Ranges& allowed,
                     uint64_t now, Report& report) {
        const uint64_t bytes = uint64_t(burst.beats) * beat_bytes, a = burst.address;
        const std::string name = std::string(channel) + " " + hex(a) + " with " + std::to_string(burst.beats) + " beats: ";
        if (size != 4) report(now, name + "SIZE is " + std::to_string(size) + ", expected 4 (16 bytes)");
        if (kind != 1) report(now, name + "BURST is " + std::to_string(kind) + ", expected 1 (INCR)");
        if (a % beat_bytes) report(now, name + "address is not a multiple of 16 bytes");
        if (burst.beats > settings_.burst_beats)
            report(now, name + "longer than " + std::to_string(settings_.burst_beats) + " beats");
        if (a / 4096 != (a + bytes - 1) / 4096) report(now, name + "crosses a 4 KiB boundary");
        if (!ddr().holds(a, bytes)) {
            report(now, name + "outside the memory");
            burst.response = 3;  // DECERR
        } else if (!allowed.holds(a, bytes)) {
            report(now, name + "outside the buffers that belong to this command");
        }
        if (faulty.touches(a, bytes)) burst.response = 2;  // SLVERR
    }

    Range ddr() const { return {settings_.base, settings_.bytes}; }

    void present_beat(Top& top) {
        const Burst& burst = reads_.front();
        const uint64_t address = burst.address + uint64_t(burst.done) * beat_bytes;
        uint32_t words[4] = {0xDEADDEAD, 0xDEADDEAD, 0xDEADDEAD, 0xDEADDEAD};
        if (ddr().holds(address, beat_bytes)) std::memcpy(words, data_ + (address - settings_.base), beat_bytes);
        for (int i = 0; i < 4; i++) top.m_axi_rdata[i] = words[i];
        top.m_axi_rid = burst.id;
        top.m_axi_rresp = burst.response;
        top.m_axi_rlast = burst.done + 1 == burst.beats;
        r_valid_ = true;
    }

    void take_read_beat() {
        r_valid_ = false;
        handshakes_++;
        if (++reads_.front().done == reads_.front().beats) reads_.pop_front();
    }

    // Joins data beats with their addresses, in order; data may arrive before its address.
    void settle_writes(uint64_t now, Report& report) {
        for (Burst& burst : writes_) {
            while (!burst.complete && !beats_.empty()) {
                const Beat beat = beats_.front();
                beats_.pop_front();
                store(burst.address + uint64_t(burst.done) * beat_bytes, beat);
                burst.done++;
                if (beat.last != (burst.done == burst.beats))
                    report(now, "W: LAST is " + std::to_string(beat.last) + " on beat " + std::to_string(burst.done) +
                                    " of " + std::to_string(burst.beats));
                burst.complete = burst.done == burst.beats;
                if (burst.complete) burst.ready = now + settings_.latency(write_bursts_++);
            }
            if (!burst.complete) break;
        }
    }

    void store(uint64_t address, const Beat& beat) {
        if (!ddr().holds(address, beat_bytes)) return;
        uint8_t bytes[beat_bytes];
        std::memcpy(bytes, beat.data, beat_bytes);
        for (uint32_t i = 0; i < beat_bytes; i++)
            if (beat.strobe >> i & 1) data_[address - settings_.base + i] = bytes[i];
    }

    MemorySettings settings_;
    uint8_t* data_ = nullptr;
    std::deque<Burst> reads_, writes_;
    std::deque<Beat> beats_;
    bool r_valid_ = false, b_valid_ = false;
    uint64_t read_bursts_ = 0, write_bursts_ = 0;  // that have a latency since `begin`
    uint64_t next_read_ = 0, next_write_ = 0;      // cycles from which another beat may move
    uint64_t first_ = 0;
    uint64_t handshakes_ = 0;
    Stall ar_stall_, r_stall_, aw_stall_, w_stall_, b_stall_;
    Handshake<4> ar_{"AR"}, aw_{"AW"};
    Handshake<5> w_{"W"};
};
