/* GPUs that work one after the other, recorded. */
#include "probe/heat_fit.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "io/subprocess.h"
#include "telemetry/recording.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double beginning_s = 10; /* of rest, at most a turn */
static const double least_work_s = 1;

/* The writer's side; its thread alone uses it until the sampler has stopped. */
struct tape {
    struct erg_recorder *recorder;
    struct erg_error err;
    atomic_bool failed;
};

static void put(void *context, const struct erg_sampler_item *item)
{
    struct tape *tape = context;
    if (!atomic_load(&tape->failed) && erg_recorder_add(tape->recorder, item, &tape->err) != 0)
        atomic_store(&tape->failed, true);
}

static int rest(const struct tape *tape, double seconds, struct erg_error *err)
{
    const int64_t end_ns = erg_now_ns() + (int64_t)(1e9 * seconds);
    while (erg_now_ns() < end_ns && !atomic_load(&tape->failed))
        if (erg_interrupt_check(err) != 0)
            return -1;
        else
            nanosleep(&(struct timespec){0, 10000000}, NULL);
    return 0;
}

/* Works until its time is over; its time after the end of the work is rest. */
static int work(const struct erg_gpu_info *info, const char *const *command, double turn_s,
                const struct tape *tape, struct erg_error *err)
{
    struct erg_subprocess process = {0};
    char visible[160];
    size_t count = 0;
    while (command[count])
        count++;
    const char **words = erg_xcalloc(count + 3, sizeof(const char *));
    snprintf(visible, sizeof visible, "CUDA_VISIBLE_DEVICES=%s", info->uuid);
    words[0] = "env";
    words[1] = visible;
    memcpy(&words[2], command, count * sizeof *command);
    const int64_t start_ns = erg_now_ns();
    int status = erg_subprocess_run(&process, words, NULL, turn_s, err);
    const double worked_s = 1e-9 * (double)(erg_now_ns() - start_ns);
    if (status == 0 && process.status != 0 && !process.late && worked_s < least_work_s)
        status = erg_fail(err, ERG_FAILED, "loading GPU %d with '%s': %s", info->index, command[0],
                          erg_subprocess_reason(&process));
    erg_subprocess_release(&process);
    free(words);
    return status || erg_interrupt_check(err) || rest(tape, fmax(turn_s - worked_s, 0), err) ? -1
                                                                                             : 0;
}

static int take_turns(const struct erg_gpus *gpus, const char *const *command, double turn_s,
                      const struct tape *tape, struct erg_error *err)
{
    const size_t count = erg_gpus_count(gpus);
    int status = rest(tape, fmin(beginning_s, turn_s), err);
    for (size_t g = 0; g < count && status == 0; g++) {
        const struct erg_gpu_info *info = erg_gpus_info(gpus, g);
        erg_log(ERG_LOG_INFO, "GPU %d works for %g s, then all rest; %.0f minutes left",
                info->index, turn_s, ceil((double)(count - g) * 2 * turn_s / 60));
        status = work(info, command, turn_s, tape, err) || rest(tape, turn_s, err);
    }
    return status;
}

int erg_heat_measure(const char *path, const char *const *command, double turn_s,
                     struct erg_error *err)
{
    const struct erg_sampler_options pace = erg_sampler_options_default();
    struct tape tape = {.recorder = NULL};
    const struct erg_sampler_sink sink = {.put = put, .context = &tape};
    struct erg_gpus *gpus;
    struct erg_sampler *sampler;
    if (erg_gpus_open(&gpus, NULL, err) != 0)
        return -1;
    int status = erg_recorder_open(&tape.recorder, path, gpus, 0, err);
    if (status == 0) {
        status = erg_sampler_start(&sampler, gpus, &pace, &sink, err);
        if (status == 0) {
            status = take_turns(gpus, command, turn_s, &tape, err);
            erg_sampler_stop(sampler);
        }
        if (status == 0 && atomic_load(&tape.failed)) {
            *err = tape.err;
            status = -1;
        }
        if (erg_recorder_close(tape.recorder, status ? NULL : err) != 0)
            status = -1;
    }
    erg_gpus_close(gpus);
    return status ? -1 : 0;
}
