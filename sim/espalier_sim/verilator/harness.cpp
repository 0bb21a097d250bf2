// The verilated accelerator with its clock, DDR and host, behind a C interface for ctypes.
// Built with -DLANES=<bytes of a tile word>, and -DWAVES_VCD or -DWAVES_FST for a build that dumps waves.
#include <memory>
#include <vector>

#include "Vespalier.h"
#include "Vespalier___024root.h"
#include "control.hpp"
#include "memory.hpp"
#include "verilated.h"

#if defined(WAVES_FST)
#include "verilated_fst_c.h"
using Waves = VerilatedFstC;
#elif defined(WAVES_VCD)
#include "verilated_vcd_c.h"
using Waves = VerilatedVcdC;
#endif

namespace {

// One write into the feature memory.
struct TraceEntry {
    uint32_t cycle;
    uint16_t address;
    uint8_t bank, layer;
    uint8_t data[(LANES + 7) / 8 * 8];
};

enum Outcome { finished = 0, running = 1, stuck = 2 };

struct Simulator {
    explicit Simulator(const MemorySettings& settings) : memory(settings) {}

    VerilatedContext context;
    Vespalier top{&context};
    Memory<Vespalier> memory;
    Control<Vespalier> control;
    Report report;
    std::vector<TraceEntry> trace;
    bool tracing = true;
    uint64_t cycle = 0, last_progress = 0, seen_handshakes = 0;
    std::string text;
#if defined(WAVES_FST) || defined(WAVES_VCD)
    Waves waves;
    bool dumping = false;
    void dump(uint64_t time) {
        if (dumping) waves.dump(time);
    }
#else
    void dump(uint64_t) {}
#endif

    void tick() {
        memory.drive(top, cycle);
        control.drive(top);
        top.aclk = 0;
        top.eval();
        dump(2 * cycle);
        memory.sample(top, cycle, report);
        control.sample(top, cycle, report);
        record();
        top.aclk = 1;
        top.eval();
        dump(2 * cycle + 1);
        cycle++;
    }

    void record() {
        const auto& root = *top.rootp;
        if (memory.handshakes() != seen_handshakes) {
            seen_handshakes = memory.handshakes();
            last_progress = cycle;
        }
        if (root.espalier__DOT__trace_valid_0)
            keep(root.espalier__DOT__trace_address_0, root.espalier__DOT__trace_bank_0,
                 root.espalier__DOT__trace_layer_0, &root.espalier__DOT__trace_data_0[0]);
        if (root.espalier__DOT__trace_valid_1)
            keep(root.espalier__DOT__trace_address_1, root.espalier__DOT__trace_bank_1,
                 root.espalier__DOT__trace_layer_1, &root.espalier__DOT__trace_data_1[0]);
    }

    void keep(uint16_t address, uint8_t bank, uint8_t layer, const void* data) {
        last_progress = cycle;
        if (!tracing) return;
        TraceEntry entry{uint32_t(cycle), address, bank, layer, {}};
        std::memcpy(entry.data, data, LANES);
        trace.push_back(entry);
    }

    void reset() {
        memory.reset();
        control.reset();
        top.aresetn = 0;
        for (int i = 0; i < 16; i++) tick();
        if (top.m_axi_arvalid || top.m_axi_awvalid || top.m_axi_wvalid || top.s_axi_ctrl_bvalid || top.s_axi_ctrl_rvalid)
            report(cycle, "a VALID output is high during reset");
        top.aresetn = 1;
        for (int i = 0; i < 4; i++) tick();
        last_progress = cycle;
    }

    bool finish_access() {
        for (int i = 0; control.busy() && i < 10000; i++) tick();
        return !control.busy();
    }

    // Verilator renames the port because some compilers reserve the word.
    bool interrupt() const { return top.__SYM__interrupt; }

    Outcome run(uint64_t cycles, uint64_t patience) {
        for (uint64_t i = 0; i < cycles; i++) {
            if (interrupt()) return finished;
            tick();
            if (cycle - last_progress > patience) return stuck;
        }
        return interrupt() ? finished : running;
    }
};

}  // namespace

extern "C" {

Simulator* espalier_create(const MemorySettings* settings) {
    auto simulator = std::make_unique<Simulator>(*settings);
    if (!simulator->memory.data()) return nullptr;
    return simulator.release();
}

void espalier_destroy(Simulator* s) {
#if defined(WAVES_FST) || defined(WAVES_VCD)
    if (s->dumping) s->waves.close();
#endif
    s->top.final();
    delete s;
}

// 0: waves are written to `path`; 1: this build cannot write waves, or the file cannot be written.
int espalier_open_waves(Simulator* s, const char* path) {
#if defined(WAVES_FST) || defined(WAVES_VCD)
    s->context.traceEverOn(true);
    s->top.trace(&s->waves, 99);
    s->waves.open(path);
    s->dumping = s->waves.isOpen();
    return s->dumping ? 0 : 1;
#else
    (void)s, (void)path;
    return 1;
#endif
}

void espalier_reset(Simulator* s) { s->reset(); }

void espalier_seed(Simulator* s, uint64_t seed) {
    s->memory.seed(seed);
    s->control.seed(seed);
}

void espalier_begin(Simulator* s) { s->memory.begin(s->cycle); }

uint8_t* espalier_memory(Simulator* s) { return s->memory.data(); }
uint64_t espalier_cycle(Simulator* s) { return s->cycle; }
int espalier_interrupt(Simulator* s) { return s->interrupt(); }

// kind 0: readable, 1: writable: the only such range from now on; 2: answered with SLVERR.
void espalier_range(Simulator* s, int kind, uint64_t base, uint64_t bytes) {
    if (kind == 2)
        s->memory.faulty = Range{base, bytes};
    else
        (kind ? s->memory.writable : s->memory.readable).set(Range{base, bytes});
}

// One more range that may be read (kind 0) or written (1); without bytes: the one at `base` is no more.
void espalier_open(Simulator* s, int kind, uint64_t base, uint64_t bytes) {
    Ranges& ranges = kind ? s->memory.writable : s->memory.readable;
    if (bytes)
        ranges.add(Range{base, bytes});
    else
        ranges.remove(base);
}

void espalier_silence(Simulator* s, int on) { s->memory.silent = on; }

// Both return 0, or 1 if the access was not answered within 10,000 cycles, or 2 for an error response.
int espalier_write(Simulator* s, uint32_t address, uint32_t value) {
    s->control.start_write(address, value);
    if (!s->finish_access()) return 1;
    s->last_progress = s->cycle;
    return s->control.response() ? 2 : 0;
}

int espalier_read(Simulator* s, uint32_t address, uint32_t* value) {
    s->control.start_read(address);
    if (!s->finish_access()) return 1;
    *value = s->control.value();
    return s->control.response() ? 2 : 0;
}

void espalier_idle(Simulator* s, uint64_t cycles) {
    while (cycles--) s->tick();
    s->last_progress = s->cycle;
}

// Clocks until the interrupt (0), for `cycles` cycles (1), or until nothing moved for `patience` cycles (2).
int espalier_run(Simulator* s, uint64_t cycles, uint64_t patience) { return s->run(cycles, patience); }

uint64_t espalier_violations(Simulator* s) { return s->report.count(); }
const char* espalier_violation_text(Simulator* s) { return s->report.text().c_str(); }
void espalier_clear_violations(Simulator* s) { s->report.clear(); }

const char* espalier_channels(Simulator* s) {
    s->text = s->memory.state() + "; " + s->control.state();
    return s->text.c_str();
}

void espalier_tracing(Simulator* s, int on) {
    s->tracing = on;
    s->trace.clear();
}
uint64_t espalier_trace_length(Simulator* s) { return s->trace.size(); }
const void* espalier_trace(Simulator* s) { return s->trace.data(); }
uint32_t espalier_trace_entry_bytes() { return sizeof(TraceEntry); }

}  // extern "C"
