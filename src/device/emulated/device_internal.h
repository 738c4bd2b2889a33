/*
 * Internals of the emulated device: its history of power and heat in virtual time, and its sensors.
 *
 * In each piece of time, power is constant dynamic power plus static power that follows the die's
 * temperature. Temperature and energy have a closed form within a piece, so reading a sensor never
 * changes anything. The last piece has no end: it is the state of the GPU without further work.
 */
#ifndef ERG_DEVICE_EMULATED_DEVICE_INTERNAL_H
#define ERG_DEVICE_EMULATED_DEVICE_INTERNAL_H

#include "device/emulated/emulated_internal.h"

#include <math.h>
#include <stdint.h>

/* One exponential component of the approach to the final temperatures. */
struct erg_history_mode {
    double rate_per_s;     /* 0: it never decays */
    double gain_c, sink_c; /* its full amplitude, of the die and of the sink */
    double static_swing_j; /* its contribution to the energy */
};

struct erg_history_piece {
    int64_t start_ns;
    double temperature_c;             /* at the start */
    double sink_c;                    /* at the start; with a chassis only */
    double final_c;                   /* final temperature */
    struct erg_history_mode modes[2]; /* one without a chassis */
    double static_tail_w;             /* static power once the temperature has settled */
    double dynamic_w;                 /* of a nominal GPU */
    double clock_mhz;
    uint32_t reasons;
};

/* The contribution of one GPU of the group to a piece. */
struct erg_piece_gpu {
    double energy_j; /* from the beginning of the history to the start of the piece */
    double factor;   /* on the dynamic power */
};

/*
 * The hottest GPU of a chassis whose GPUs all do the same work, as a die and a sink. It begins as
 * warm as after hours of training: at the power cap, or at the lower power that the heat limit
 * allows.
 */
struct erg_node_heat {
    const struct erg_heat_limit *limit; /* NULL: no chassis, numbers of the GPU */
    double die_k_per_w, sink_k_per_w;
    double die_j_per_k, sink_j_per_k;
    double air_c, soaked_die_c, soaked_sink_c;
};

/* `chassis` may be NULL. */
struct erg_node_heat erg_node_heat(const struct erg_chassis *chassis, const struct erg_gpu *gpu);

struct erg_history {
    const struct erg_gpu *gpu;
    bool heat;
    struct erg_node_heat node;
    size_t gpus;
    struct erg_history_piece *pieces;
    struct erg_piece_gpu *shares; /* [piece][gpu] */
    size_t count, capacity;
};

/* Idle since long before time 0. */
void erg_history_begin(struct erg_history *history);
void erg_history_release(struct erg_history *history);

/* The power of a period: `static_w` is at the reference temperature and grows with leakage. */
struct erg_load {
    double dynamic_w, static_w, leak_per_k;
    double clock_mhz;
    uint32_t reasons;
};

/*
 * Sets the load from start_ns on, which is not before the start of the last piece; `factors`: one
 * per GPU on the dynamic power; NULL: 1.
 */
void erg_history_append(struct erg_history *history, int64_t start_ns, const struct erg_load *load,
                        const double *factors);

/* Removes what starts at or after start_ns: idle time gives way to work. */
void erg_history_truncate(struct erg_history *history, int64_t start_ns);

/* Forgets pieces that ended before `until_ns`. */
void erg_history_forget(struct erg_history *history, int64_t until_ns);

size_t erg_history_find(const struct erg_history *history, int64_t at_ns);
double erg_history_temperature(const struct erg_history *history, int64_t at_ns);
double erg_history_sink(const struct erg_history *history, int64_t at_ns); /* with a chassis */
double erg_history_energy(const struct erg_history *history, size_t gpu, int64_t at_ns);

/* The final temperature under a load. */
double erg_history_settled(const struct erg_history *history, const struct erg_load *load);

/* ---- the device ---- */

/* The values of the sensors until their next tick. */
struct sensor_latch {
    int64_t tick;
    uint64_t energy_mj;
    double power_w, temperature_c;
};

struct emulated_gpu {
    double slowness, gain; /* constant per GPU: log of its time, and of its energy counter */
    int64_t phase_ns;      /* of its sensors */
    uint64_t offset_mj;    /* of its counter */
    struct sensor_latch latch;
};

struct emulated {
    struct erg_device base;
    const struct erg_gpu *gpu;
    const struct erg_stack *stack;
    struct erg_emulated_options options;
    char *identity;

    uint64_t stream; /* seed and key */
    uint64_t calls;  /* since begin */
    int64_t now_ns, busy_until_ns;
    int clock_mhz, previous_clock_mhz; /* the previous one lasts until switch_ns */
    int64_t switch_ns;
    struct erg_history history;
    struct erg_device_span spans[ERG_DEVICE_SPANS]; /* of call c: spans[c % ERG_DEVICE_SPANS] */
    uint64_t span_count;
    struct emulated_gpu *gpus;
    double *factors;       /* on the dynamic power of each GPU in the current enqueue */
    double usual_slowness; /* of the slowest of the group, on average */
};

static inline struct emulated *emulated_of(struct erg_device *device)
{
    return (struct emulated *)(void *)device;
}

static inline int64_t to_ns(double seconds)
{
    return (int64_t)llround(seconds * 1e9);
}

/* The device's method of that name. */
int erg_emulated_sense(struct erg_device *device, struct erg_sample *samples,
                       struct erg_error *err);

#endif
