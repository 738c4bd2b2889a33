/*
 * A fake NVML: a shared library with the entry points that ergon uses, over a scripted world of
 * GPUs. Point $ERGON_NVML at it, and $ERGON_FAKE_NVML at a file with a script; a test that has
 * opened the library itself may give the script as text and ask for the truth.
 *
 * A script is lines of words; '#' begins a comment. Times are seconds since the script was read.
 *
 *   gpus N                      first line; 1 to 8
 *   tail TEXT                   end of all UUIDs, for GPUs that no other test has
 *   log FILE                    settings are appended here and shared between processes, a line
 *                               each: PROCESS WHAT GPU LOW HIGH TIME, the time being that of
 *                               CLOCK_MONOTONIC in ns; WHAT is set or reset (the SM clock, MHz),
 *                               limit (mW), memset, memreset (memory clock) or persist (0 or 1)
 *   gpu I|* COMMAND ...         to one GPU or to all:
 *     power T=W T=W ...         watts, linear between points, two of equal T are a step
 *     cycle S                   the course of power repeats
 *     follow limit|clock X=W ...  watts by what is set: a power limit (W) or a highest locked
 *                               clock (MHz), linear between; at most 512 changes
 *     counter PERIOD PHASE      energy counter and power reading move every PERIOD
 *     jitter S                  each step is late by up to S
 *     gain G                    of the counter
 *     name TEXT...              what the GPU is called, bytes as they are; may be empty
 *     uuid TEXT...              likewise (= GPU-, a letter and numbers from I, the tail)
 *     glitch AT FOR MJ          from AT for FOR seconds the energy counter answers MJ
 *     restart AT                the energy counter starts anew, as when the driver is reloaded
 *     window S                  instant power is the mean of the last S before a step (= PERIOD)
 *     temperature GPU MEMORY    degrees C
 *     clock MHZ                 SM clock when not locked
 *     place DOMAIN BUS DEVICE   on the PCI bus (= 0, 27 + I, 0)
 *     reasons BITS FROM TO      clock event reasons, hexadecimal; count as violation time
 *     pcie TX RX                bytes per second
 *     nvlink TX RX LINKS WAY    bytes per second; WAY is together, each, bytes or none
 *     narrow                    byte counters have 32 bits
 *     limit W                   enforced power limit
 *     limits MIN MAX DEFAULT    W; the limit can be set within them (= 200, 700, 700)
 *     settle UP DOWN            a new lock shows after UP or DOWN seconds (= 0)
 *     arbitrate MHZ             the SM clock never shows more, whatever it is locked to
 *     module                    power is known of the whole module only
 *     type CALL TYPE              a field comes as this NVML type; beyond 6 as one of tomorrow
 *     fail CALL RESULT FROM TO  the call gives this NVML result
 *     fail CALL RESULT FILE     likewise while this file is there; its path begins with "/", or
 *                               with "./" for one beside the script that $ERGON_FAKE_NVML names
 *     slow CALL S               every such call takes S
 *     hang CALL AT S            the first such call after AT takes S; with a file as AT, the first
 *                               one that finds it there, until it goes
 *     lost AT                   falls off the bus
 *     xid NUMBER AT             a critical error
 *     nolocks                   refuses clock locks and limits (no permission)
 *     stuck                     takes clock locks, but its clock stays as it is
 *
 * CALL is an entry point without "nvmlDevice", or "field ID" written field186.
 */
#ifndef ERGON_TESTS_FAKE_NVML_H
#define ERGON_TESTS_FAKE_NVML_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Replaces the world and starts its time at 0. Returns false for a script that is wrong. */
bool fake_nvml_script(const char *text);

/* What a GPU really used between two moments of CLOCK_MONOTONIC, J (without the counter's gain). */
double fake_nvml_energy_j(unsigned gpu, int64_t from_ns, int64_t to_ns);

/* From and until these moments of CLOCK_MONOTONIC the GPU draws so much more than the script says,
 * which may lie ahead: what a trainer's passes need at the clock that they find. In order, and none
 * of them at the same time as another. */
void fake_nvml_work(unsigned gpu, int64_t from_ns, int64_t to_ns, double more_w);

/* From now on the GPU draws so much, whatever is set: for GPUs that follow a limit or a clock. */
void fake_nvml_draw(unsigned gpu, double power_w);

/* Calls of an entry point so far, to any GPU. */
unsigned fake_nvml_calls(const char *call);

/* CLOCK_MONOTONIC at which the world's time is 0. */
int64_t fake_nvml_start_ns(void);

/* Ends all hangs. */
void fake_nvml_release(void);

/* ---- between the files of the fake ---- */

enum {
    FAKE_GPUS = 8,
    FAKE_POINTS = 256,
    FAKE_RULES = 32,
    FAKE_LINKS = 18,
    FAKE_FOLLOWED = 16,
    FAKE_CHANGES = 513,
    FAKE_WORKS = 4096,
};

/* Work that a test has told of: s, W, and J of those before. */
struct fake_work {
    double from_s, to_s, more_w, before_j;
};

struct fake_rule {
    enum { FAKE_FAIL, FAKE_SLOW, FAKE_HANG, FAKE_REASONS, FAKE_TYPE, FAKE_GLITCH } kind;
    char call[48], file[96];
    int result;
    uint64_t bits;
    double from_s, to_s, duration_s;
};

struct fake_gpu {
    unsigned index;
    double time_s[FAKE_POINTS], power_w[FAKE_POINTS];
    size_t points;
    double cycle_s;
    double follow_at[FAKE_FOLLOWED], follow_w[FAKE_FOLLOWED];
    size_t followed; /* 0: power has the course above */
    bool follows_clock;
    double change_s[FAKE_CHANGES], change_w[FAKE_CHANGES]; /* since when it draws how much */
    atomic_size_t changes;
    double period_s, phase_s, jitter_s, gain, window_s;
    double temperature_c, memory_temperature_c, clock_mhz, limit_w;
    double limits_w[3], settle_s[2], arbitrate_mhz;
    double place[3];
    char name[160], uuid[160]; /* uuid "": the usual one */
    double pcie[2], nvlink[2];
    unsigned links;
    enum { FAKE_TOGETHER, FAKE_EACH, FAKE_BYTES, FAKE_NONE } link_way;
    bool narrow, module, nolocks, stuck;
    double lost_s, xid_s, restart_s;
    int xid;
    struct fake_rule rules[FAKE_RULES];
    size_t rule_count;
    bool hung[FAKE_RULES], xid_told;
    /* As the log says it, or without one this process: what is set, and what was before. */
    unsigned locked_min_mhz, locked_max_mhz, before_min_mhz, before_max_mhz; /* 0 = not locked */
    unsigned memory_mhz, set_limit_mw, persistence;
    int64_t locked_ns;
    struct fake_work works[FAKE_WORKS]; /* a ring */
    size_t work_count;
};

struct fake_world {
    struct fake_gpu gpus[FAKE_GPUS];
    unsigned count;
    char log[512], tail[16];
    int64_t start_ns;
    long log_read; /* bytes of the log that the GPUs below know */
};

extern struct fake_world fake_world;
extern atomic_bool fake_released; /* not of the world: threads that hang look at it */

double fake_now_s(void);
/* A GPU whose power follows draws this much from now on. */
void fake_follow(struct fake_gpu *gpu, double at_s);
double fake_energy_at(const struct fake_gpu *gpu, double at_s);
double fake_last_step_s(const struct fake_gpu *gpu, double at_s); /* of the sensors */
uint64_t fake_reasons_at(const struct fake_gpu *gpu, double at_s);
double fake_reasons_time(const struct fake_gpu *gpu, uint64_t bits, double until_s);

#endif
