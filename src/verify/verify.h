/*
 * Verify: a plan's schedule on a stack of layers, compared with the sum of its pieces.
 *
 * The planner adds up pieces: partitions, whole layers, the ends of an instruction. Here an
 * instruction of several layers is run in one go, in each direction and three ways: sequentially,
 * as plain nanobatches with the library's communication at once, and by the plan: by the options of
 * most of its instructions, where they differ. The pieces of its composition are measured between
 * two measurements of the stack, within the same minute and so equally hot; the two should agree.
 * Each partition that the plan overlaps is measured three ways as well: with the library's
 * communication after its compute, with it at once, and by the plan. Devices that compute also
 * check that all ways give the same output and gradients.
 *
 * A stack differs from the sum of its pieces because pieces interact: the power cap limits the mean
 * of all, so a piece runs faster next to a frugal one than alone; there are joins; and data remains
 * in the cache.
 */
#ifndef ERG_OPTIMIZE_VERIFY_H
#define ERG_OPTIMIZE_VERIFY_H

#include "device/device.h"
#include "device/profiler.h"
#include "ergon/error.h"
#include "job/job.h"
#include "microbatch/microbatch.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>

enum erg_verify_way {
    ERG_VERIFY_SEQUENTIAL,
    ERG_VERIFY_NANOBATCHING,
    ERG_VERIFY_PLAN,
    ERG_VERIFY_WAYS,
};
const char *erg_verify_way_name(enum erg_verify_way way); /* "sequential", "nanobatching", "plan" */

struct erg_verify_request {
    const struct erg_job *job;
    const struct erg_plan *plan; /* made from this job */
    struct erg_device *device;   /* a real one with the given number of layers; NULL: an emulated
                                  * one */
    bool repeatable; /* compare with kernels that give the same bits in every run, so that a
                      * difference in bits is one between the ways */
    int layers;      /* >= 2: the ends of an instruction and what lies between */
};

/* One direction of one way; costs are those of one GPU and one instruction. */
struct erg_verify_row {
    bool backward;
    enum erg_verify_way way;
    enum erg_mode mode;              /* of the plan: its instructions in this direction */
    struct erg_cost composed, stack; /* from its pieces; as measured in one go */
    double composed_mhz, stack_mhz;  /* clock, mean over time */
    struct erg_measurement profile;  /* of the stack, the second time */
};

/* A partition, once: the compute of one nanobatch and a communication; costs of one GPU. */
struct erg_verify_partition {
    char name[24];
    bool backward; /* the direction in the plan: with a replay, the backward pass has forward ones,
                    * too */
    struct erg_cost costs[ERG_VERIFY_WAYS];
};

enum { ERG_VERIFY_PARTITIONS = 64 };

/* How far the tensors of one way are from those of another. */
struct erg_verify_comparison {
    const char *way, *reference; /* "sequential again": the same way twice */
    struct erg_difference tensors[ERG_DIFFERENCES];
    size_t count;
};

enum { ERG_VERIFY_COMPARISONS = 4 };

/* Instructions of a direction, on all stages, and those that run the verified options of the
 * plan. */
struct erg_verify_share {
    size_t uses, instructions;
};

struct erg_verification {
    struct erg_verify_share shares[2];               /* forward, backward */
    struct erg_verify_row rows[2 * ERG_VERIFY_WAYS]; /* forward, then backward */
    size_t row_count;
    struct erg_verify_partition partitions[ERG_VERIFY_PARTITIONS]; /* that the plan overlaps */
    size_t partition_count;
    struct erg_verify_comparison comparisons[ERG_VERIFY_COMPARISONS];
    size_t comparison_count; /* 0 where nothing is computed */
};

/*
 * ERG_USAGE when the plan is not of this job (or, emulated, of another GPU) or when the model has
 * fewer layers, ERG_INFEASIBLE when its microbatch cannot be split in two. Says nothing of whether
 * the two agree: erg_verify_judge().
 */
int erg_verify(const struct erg_verify_request *request, struct erg_verification *verification,
               struct erg_error *err);

/*
 * ERG_FAILED, naming the worst, when a stack's time or energy is more than 3 % from its
 * composition, or tensors of two ways are further apart than roundings of bf16 explain.
 */
int erg_verify_judge(const struct erg_verification *verification, struct erg_error *err);

#endif
