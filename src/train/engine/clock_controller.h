/*
 * Clock controller: sets the SM clock of this rank's GPU from instruction to instruction, because a
 * user asked for it by name.
 *
 * The thread that queues instructions runs ahead of the device and never waits for it, so it cannot
 * set a clock itself: the device would still run an earlier instruction. It passes the clock of an
 * instruction, and the number of instructions that finish before it. A thread
 * (telemetry/clock_thread.h) looks at the number that the device counts up (`count` of
 * device/backend.h) every 0.2 ms while something waits, and calls the driver when the instruction
 * before has ended. A call that takes longer than an instruction makes several clocks due at once:
 * the latest one is set.
 *
 * Where the driver refuses, or the guardian of the clocks ends, GPUs are left at their own clocks
 * for the rest of the run: that is logged once, or fails the run where clocks are required.
 */
#ifndef ERG_TRAIN_ENGINE_CLOCK_CONTROLLER_H
#define ERG_TRAIN_ENGINE_CLOCK_CONTROLLER_H

#include "telemetry/clocks.h"

struct erg_clock_controller;

struct erg_clock_controller_options {
    struct erg_gpus *gpus; /* kept open as long as they are needed */
    size_t gpu;            /* this rank's, an index into them */
    /* Instructions that the device has finished, counted up atomically; outlives the controller.
     * NULL: the device does not say so, which is a refusal, too. */
    const uint64_t *finished;
    bool required; /* a refusal is a failure */
};

/*
 * Starts the guardian and tries the GPU once. Where clocks are refused: ERG_NO_DEVICE if they are
 * required, else a warning and a controller that does nothing.
 */
int erg_clock_controller_open(struct erg_clock_controller **controller,
                              const struct erg_clock_controller_options *options,
                              struct erg_error *err);

/*
 * Forgets what still waits and unlocks the GPU. Fails as erg_clocks_close() does; `controller` is
 * gone all the same. NULL is fine.
 */
int erg_clock_controller_close(struct erg_clock_controller *controller, struct erg_error *err);

/*
 * Work that is queued next runs at `clock_mhz`, 0: at the present clock. The clock is set once
 * *finished is `due` or more, which never falls from one call to the next. Called by one thread,
 * which waits neither for the device nor for the driver. Fails only with ERG_NO_DEVICE, where
 * clocks are required and an earlier one was refused.
 */
int erg_clock_controller_ask(struct erg_clock_controller *controller, int clock_mhz, uint64_t due,
                             struct erg_error *err);

/* Plain data without pointers, since the controller was opened. Means and worsts of none are NaN.
 */
struct erg_clock_numbers {
    uint64_t asked;                   /* calls with a clock */
    uint64_t set;                     /* the driver accepted it */
    uint64_t skipped;                 /* it was that clock already, or was to be by then */
    uint64_t superseded;              /* a later one was due before it was set */
    double call_mean_s, call_worst_s; /* of calls of the driver */
    /* From the end of the instruction before, or from the asking if that was later, to the call: at
     * most so much, because the end lies between two looks. */
    double late_mean_s, late_worst_s;
    int32_t refused; /* clocks are not set, or not any more */
};

/* May be called by any thread. */
void erg_clock_controller_read(struct erg_clock_controller *controller,
                               struct erg_clock_numbers *numbers);

#endif
