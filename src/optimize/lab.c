/* Lab: makes each measurement once, and looks it up in the store after that. */
#include "optimize/lab.h"

#include "base/memory.h"
#include "base/random.h"
#include "device/emulated/emulated.h"
#include "io/store.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct erg_lab {
    struct erg_lab_request request;
    struct erg_store *store;
    char *identity;
    pthread_mutex_t lock;
    struct erg_lab_counts counts;
    double clocks_mhz; /* sum over energy measurements ... */
    size_t clock_count;
    int64_t device_ns; /* whole, so that the sum is the same in any order of the threads */
};

int erg_lab_open(struct erg_lab **out, const struct erg_lab_request *request, struct erg_error *err)
{
    struct erg_lab *lab = erg_xcalloc(1, sizeof *lab);
    lab->request = *request;
    pthread_mutex_init(&lab->lock, NULL);
    struct erg_device *device = NULL;
    if (erg_store_open(&lab->store, request->store_path, err) || erg_lab_bench(lab, &device, err)) {
        erg_lab_close(lab);
        return -1;
    }
    lab->identity = erg_xstrdup(device->identity);
    erg_lab_bench_close(lab, device);
    *out = lab;
    return 0;
}

void erg_lab_close(struct erg_lab *lab)
{
    if (!lab)
        return;
    if (lab->store)
        erg_store_close(lab->store);
    pthread_mutex_destroy(&lab->lock);
    free(lab->identity);
    free(lab);
}

const char *erg_lab_identity(const struct erg_lab *lab)
{
    return lab->identity;
}

struct erg_lab_counts erg_lab_counts(struct erg_lab *lab)
{
    pthread_mutex_lock(&lab->lock);
    struct erg_lab_counts counts = lab->counts;
    counts.device_s = 1e-9 * (double)lab->device_ns;
    counts.mean_clock_mhz = lab->clock_count ? lab->clocks_mhz / (double)lab->clock_count : 0;
    pthread_mutex_unlock(&lab->lock);
    return counts;
}

bool erg_lab_fixed_clock(const struct erg_lab *lab)
{
    return lab->request.device && lab->request.device->fixed_clock;
}

size_t erg_lab_benches(const struct erg_lab *lab)
{
    return lab->request.device ? 1 : 0;
}

int erg_lab_bench(struct erg_lab *lab, struct erg_device **device, struct erg_error *err)
{
    if (lab->request.device) {
        *device = lab->request.device;
        return 0;
    }
    struct erg_emulated_options options = erg_emulated_options_default();
    options.gpus = lab->request.gpus;
    options.seed = lab->request.seed;
    options.chassis = lab->request.chassis;
    return erg_emulated_open(device, lab->request.gpu, lab->request.stack, &options, err);
}

void erg_lab_bench_close(struct erg_lab *lab, struct erg_device *device)
{
    if (!lab->request.device)
        erg_device_close(device);
}

/* ---- the key of a measurement ---- */

static uint64_t mix_double(uint64_t hash, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return erg_hash_u64(hash, bits);
}

static uint64_t hash_ops(uint64_t hash, const struct erg_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct erg_op *op = &ops[i];
        hash = erg_hash_u64(hash, (uint64_t)op->kind);
        hash = erg_hash_u64(hash, (uint64_t)op->kernels);
        hash = mix_double(hash, op->flops);
        hash = mix_double(hash, op->bytes);
        hash = mix_double(hash, op->k);
        hash = mix_double(hash, op->tiles);
        if (op->chunks > 1)
            hash = mix_double(erg_hash_u64(hash, (uint64_t)op->chunks), op->heads);
    }
    return hash;
}

/* Everything about the steps that decides their time and energy. */
static uint64_t hash_steps(uint64_t hash, const struct erg_step *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct erg_step *step = &steps[i];
        const struct erg_comm *comm = &step->task.comm;
        hash = erg_hash_u64(hash, step->task.op_count);
        hash = hash_ops(hash, step->task.ops, step->task.op_count);
        hash = erg_hash_u64(hash, (uint64_t)comm->kind);
        hash = mix_double(hash, comm->wire_bytes);
        hash = erg_hash_u64(hash, (uint64_t)comm->group);
        hash = erg_hash_u64(hash, comm->library);
        if (comm->kind == ERG_COMM_NORM_HIDDEN)
            hash = mix_double(hash_ops(hash, comm->works, (size_t)comm->work_count),
                              comm->gather_bytes);
        if (comm->kind != ERG_COMM_NONE) {
            hash = erg_hash_u64(hash, step->launch.slot);
            hash = erg_hash_u64(hash, comm->library ? 0 : (uint64_t)step->launch.sms);
        }
    }
    return hash;
}

enum { SIGNATURE_BYTES = 40 };

/* The settings of a measurement are part of its key: a shorter window is less exact. */
static uint64_t hash_options(uint64_t hash, const struct erg_profile_options *options,
                             enum erg_store_kind kind)
{
    hash = mix_double(hash, options->settle_s);
    if (kind == ERG_STORE_TIME_ONLY)
        return mix_double(hash, options->burst_s);
    hash = mix_double(hash, options->window_s);
    hash = mix_double(hash, options->cooldown_s);
    return mix_double(hash, options->warmup_s);
}

static void write_signature(char *signature, uint64_t first, uint64_t second)
{
    snprintf(signature, SIGNATURE_BYTES, "%016llx%016llx", (unsigned long long)first,
             (unsigned long long)second);
}

static void count_one(struct erg_lab *lab, bool cached, enum erg_store_kind kind,
                      const struct erg_measurement *value)
{
    pthread_mutex_lock(&lab->lock);
    if (cached)
        lab->counts.cached++;
    else if (kind == ERG_STORE_FULL)
        lab->counts.energy++;
    else
        lab->counts.time_only++;
    if (!cached)
        lab->device_ns += (int64_t)(1e9 * value->device_s);
    if (kind == ERG_STORE_FULL) {
        lab->clocks_mhz += value->clock_mhz;
        lab->clock_count++;
    }
    pthread_mutex_unlock(&lab->lock);
}

static int run_profiler(struct erg_lab *lab, struct erg_device *device,
                        const struct erg_store_key *key, const struct erg_step *steps, size_t count,
                        struct erg_measurement *value, struct erg_error *err)
{
    char work[SIGNATURE_BYTES];
    write_signature(work, hash_steps(1, steps, count), hash_steps(2, steps, count));
    uint64_t name = erg_hash_u64(erg_hash_text(work), (uint64_t)key->clock_mhz);
    name = erg_hash_u64(name, (uint64_t)key->kind);
    const struct erg_profile_options *options = &lab->request.profiler;
    bool full = key->kind == ERG_STORE_FULL;
    if (full ? erg_profile(device, steps, count, key->clock_mhz, options, name, value, err)
             : erg_profile_time(device, steps, count, key->clock_mhz, options, name, value, err))
        return -1;
    if (!full)
        value->energy_j = value->energy_sd = NAN;
    return 0;
}

int erg_lab_measure(struct erg_lab *lab, struct erg_device *device, struct erg_lab_name name,
                    const struct erg_step *steps, size_t count, int clock_mhz,
                    struct erg_measurement *out, struct erg_error *err)
{
    const enum erg_store_kind kind = name.time_only ? ERG_STORE_TIME_ONLY : ERG_STORE_FULL;
    char signature[SIGNATURE_BYTES];
    const struct erg_profile_options *options = &lab->request.profiler;
    write_signature(signature, hash_options(hash_steps(1, steps, count), options, kind),
                    hash_options(hash_steps(2, steps, count), options, kind));
    struct erg_store_row row = {
        .key =
            {
                .device = lab->identity,
                .signature = signature,
                .clock_mhz = clock_mhz,
                .slot = (int)steps[0].launch.slot,
                .sms = name.sms,
                .kind = kind,
            },
        .work_name = name.task,
        .slot_name = name.slot,
    };
    bool found;
    if (erg_store_get(lab->store, &row.key, &row.value, &found, err))
        return -1;
    if (!found && (run_profiler(lab, device, &row.key, steps, count, &row.value, err) ||
                   erg_store_put(lab->store, &row, NULL, err)))
        return erg_fail_context(err, "measuring %s at %d MHz", name.task, clock_mhz);
    count_one(lab, found, kind, &row.value);
    *out = row.value;
    return 0;
}
