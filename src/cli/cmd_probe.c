/* ergon probe: what the GPUs of this machine can do, and the emulated GPU that does the same. */
#include "cli/cli.h"

#include "base/log.h"
#include "base/memory.h"
#include "device/emulated/emulated.h"
#include "device/real.h"
#include "hardware/hardware.h"
#include "io/file.h"
#include "io/json.h"
#include "launch/launch.h"
#include "probe/probe.h"
#include "telemetry/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    const char *gpu, *rows, *calibrate, *from;
    int device;
    long gpus;
};

static const char *const devices[] = {"cuda", "emulated", NULL};
enum { DEVICE_CUDA, DEVICE_EMULATED };

#define AT(member) offsetof(struct values, member)
static const struct erg_option options[] = {
    {"rows", 'o', ERG_OPTION_FILE, "ROWS.csv", AT(rows),
     .help = "keep every measurement here; those that are there are not made again"},
    {"gpu", 'g', ERG_OPTION_TEXT, "GPU", AT(gpu), .default_text = "H200-SXM",
     .help = "name or file of the GPU whose constants are the start"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "cuda", .help = "what is measured"},
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 8, .default_text = "2",
     .help = "GPUs of an emulated group"},
    {0},
};

/* Everything of one call. */
struct probing {
    const struct values *values;
    struct erg_gpu *gpu;
    struct erg_stack *stack;
    struct erg_probe_rows rows;
    int gpus;
    bool leads;
};

static int measure_emulated(struct probing *at, const struct erg_probe_program *program,
                            uint64_t seed, struct erg_error *err)
{
    struct erg_emulated_options emulated = erg_emulated_options_default();
    struct erg_device *device;
    emulated.gpus = (size_t)at->gpus;
    emulated.seed = seed;
    if (erg_emulated_open(&device, at->gpu, at->stack, &emulated, err))
        return -1;
    int status =
        erg_probe_measure(device, program, device->identity, at->values->rows, &at->rows, err);
    erg_device_close(device);
    return status;
}

/* "2 x NVIDIA H200, ..., driver 580.95". */
static void describe(const struct erg_device *device, struct erg_text *out)
{
    struct erg_gpus *gpus;
    struct erg_error ignored;
    erg_text_add(out, device->identity);
    if (erg_gpus_open(&gpus, "0", &ignored))
        return;
    erg_text_printf(out, ", driver %s", erg_gpus_info(gpus, 0)->driver);
    erg_gpus_close(gpus);
}

static int measure_cuda(struct probing *at, const struct erg_probe_program *program, uint64_t seed,
                        struct erg_error *err)
{
    struct erg_real_request request = {
        .model = program->model,
        .tensor = program->gpus,
        .context = 1,
        .sequences = program->sequences,
        .sequence = program->sequence,
        .seed = seed,
    };
    struct erg_real *real;
    if (erg_real_open(&real, &request, err))
        return -1;
    struct erg_device *device = erg_real_device(real);
    int status = 0;
    at->leads = device != NULL;
    if (device) {
        struct erg_text conditions = {0};
        describe(device, &conditions);
        status =
            erg_probe_measure(device, program, conditions.data, at->values->rows, &at->rows, err);
        erg_text_release(&conditions);
    }
    erg_real_close(real);
    return status;
}

static int measure(struct probing *at, uint64_t seed, struct erg_error *err)
{
    for (size_t shape = 0; shape < erg_probe_shapes(); shape++) {
        struct erg_probe_program program;
        if (erg_probe_program_init(&program, shape, at->gpus, at->gpu, at->stack, err))
            return -1;
        int status = at->values->device == DEVICE_CUDA ? measure_cuda(at, &program, seed, err)
                                                       : measure_emulated(at, &program, seed, err);
        erg_probe_program_release(&program);
        if (status)
            return -1;
    }
    return 0;
}

static int prepare(struct probing *at, struct erg_error *err)
{
    struct erg_launch_environment env;
    if (erg_gpu_load(&at->gpu, at->values->gpu, err) || erg_stack_load(&at->stack, "ergon", err) ||
        erg_launch_environment_read(&env, err))
        return -1;
    at->gpus = at->values->device == DEVICE_CUDA ? env.world : (int)at->values->gpus;
    at->leads = env.rank == 0;
    const char *path = at->values->rows;
    return path && access(path, F_OK) == 0 ? erg_probe_rows_load(&at->rows, path, err) : 0;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct probing at = {.values = call->values};
    uint64_t seed = call->common.seed == ERG_NOT_GIVEN ? 1 : (uint64_t)call->common.seed;
    int status = prepare(&at, err) || measure(&at, seed, err);
    erg_terminal_finish();
    if (!status && at.leads)
        for (size_t i = 0; i < at.rows.count; i++) {
            const struct erg_probe_row *row = &at.rows.items[i];
            printf("%-8s %-32s %10.3f ms %8.2f W %5.0f MHz %3.0f C\n", row->shape, row->item,
                   row->time_s * 1e3, row->energy_j / row->time_s, row->clock_mhz,
                   row->temperature_c);
        }
    erg_probe_rows_release(&at.rows);
    erg_stack_free(at.stack);
    erg_gpu_free(at.gpu);
    return status ? -1 : 0;
}

const struct erg_command erg_cmd_probe = {
    .name = "probe",
    .summary = "measure what the GPUs of this machine can do",
    .arguments = "",
    .values_bytes = sizeof(struct values),
    .options = options,
    .details = "",
    .examples = "  ergon run -n 2 -- ergon probe\n",
    .run = run,
};
