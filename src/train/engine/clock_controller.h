/*
 * Clock controller: sets the SM clock of this rank's GPU for each instruction, at a user's explicit
 * request.
 *
 * The thread that queues instructions runs ahead of the device and never waits for it, so it cannot
 * set a clock itself: the device would still run an earlier instruction. It passes the clock of an
 * instruction, and the number of instructions that finish before it. While requests wait, a thread
 * (telemetry/clock_thread.h) reads the device's count of finished instructions (`count` of
 * device/backend.h) every 0.2 ms, and calls the driver when the previous instruction has ended. If
 * a call takes longer than an instruction, several clocks are due at once: the latest one is set.
 *
 * If the driver refuses, or the guardian of the clocks ends, GPUs keep their own clocks for the
 * rest of the run: this is logged once, or fails the run if clocks are required.
 */
#ifndef ERG_TRAIN_ENGINE_CLOCK_CONTROLLER_H
#define ERG_TRAIN_ENGINE_CLOCK_CONTROLLER_H

#include "telemetry/clocks.h"

struct erg_clock_controller;

struct erg_clock_controller_options {
    struct erg_gpus *gpus; /* kept open as long as they are needed */
    size_t gpu;            /* this rank's, an index into them */
    /*
     * Number of finished instructions, which the device increments atomically; outlives the
     * controller. NULL: the device does not count, which is a refusal, too.
     */
    const uint64_t *finished;
    bool required; /* a refusal is a failure */
};

/*
 * Starts the guardian and tries the GPU once. If clocks are refused: ERG_NO_DEVICE if they are
 * required, otherwise a warning and a controller that does nothing.
 */
int erg_clock_controller_open(struct erg_clock_controller **controller,
                              const struct erg_clock_controller_options *options,
                              struct erg_error *err);

/*
 * Drops waiting requests and unlocks the GPU. Fails as erg_clocks_close() does; frees `controller`
 * in any case. NULL is fine.
 */
int erg_clock_controller_close(struct erg_clock_controller *controller, struct erg_error *err);

/*
 * Work that is queued next runs at `clock_mhz`; 0: at the current clock. The clock is set once
 * *finished reaches `due`, which never falls between calls. One thread calls it, and waits neither
 * for the device nor for the driver. Fails only with ERG_NO_DEVICE, if clocks are required and an
 * earlier one was refused.
 */
int erg_clock_controller_ask(struct erg_clock_controller *controller, int clock_mhz, uint64_t due,
                             struct erg_error *err);

/*
 * Counts since the controller was opened: plain data without pointers. Means and worsts without
 * values are NaN.
 */
struct erg_clock_numbers {
    uint64_t asked;                   /* calls with a clock */
    uint64_t set;                     /* the driver accepted it */
    uint64_t skipped;                 /* the clock was already set, or due to be by then */
    uint64_t superseded;              /* a later one was due before it was set */
    double call_mean_s, call_worst_s; /* duration of the driver's calls */
    /*
     * Delay from the end of the previous instruction, or from the request if that was later, to the
     * call: an upper bound, because the end lies between two reads.
     */
    double late_mean_s, late_worst_s;
    int32_t refused; /* clocks are not, or no longer, set */
};

/* May be called by any thread. */
void erg_clock_controller_read(struct erg_clock_controller *controller,
                               struct erg_clock_numbers *numbers);

#endif
