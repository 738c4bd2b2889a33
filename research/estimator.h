/*
 * The estimator of layout/grid/estimate.h on the models, devices and measured communication of the
 * published evaluation. Its catalogue is estimator.yaml: devices, models and the constants that
 * bench_arena fits to measured iterations.
 */
#ifndef RESEARCH_ESTIMATOR_H
#define RESEARCH_ESTIMATOR_H

#include "comm_table.h"
#include "families.h"
#include "layout/grid/estimate.h"

struct estimator_device {
    char *type;                    /* as the communication tables call it */
    double half_flops, full_flops; /* FLOP/s in half precision (tensor cores) and in fp32 */
    double memory_bandwidth;       /* bytes/s */
    double memory_bytes;
};

struct estimator {
    struct erg_estimate_constants constants; /* kernel_s was set once, and is not fitted again */
    double memory_fraction;                  /* of a GPU's memory that a job may have */
    struct estimator_device *devices;
    unsigned devices_count;
    struct family_model *models;
    unsigned models_count;
};

int estimator_load(struct estimator **estimator, const char *path, struct erg_error *err);
void estimator_free(struct estimator *estimator);

/* Fail with what there is where the estimator does not know it. */
int estimator_model(const struct estimator *estimator, const char *family, const char *size,
                    const struct family_model **model, struct erg_error *err);
int estimator_device(const struct estimator *estimator, const char *type,
                     const struct estimator_device **device, struct erg_error *err);

struct estimator_job {
    const char *family, *size;
    long batch; /* samples of an iteration, over ERG_GRID_MICROBATCHES microbatches */
};

/*
 * The fastest plan that fits: every number of stages, every shape that all stages have in common,
 * layers balanced by their forward time.
 */
int estimator_fastest(const struct estimator *estimator, const struct comm_tables *tables,
                      const struct estimator_job *job, const struct erg_allocation *allocation,
                      struct erg_grid_estimate *estimate, struct erg_error *err);

/* The published proxy plan, and one plan, whatever it needs (estimate.h). */
int estimator_proxy(const struct estimator *estimator, const struct comm_tables *tables,
                    const struct estimator_job *job, const struct erg_allocation *allocation,
                    struct erg_grid_estimate *estimate, struct erg_error *err);
int estimator_plan(const struct estimator *estimator, const struct comm_tables *tables,
                   const struct estimator_job *job, const struct erg_allocation *allocation,
                   const struct erg_grid_plan *plan, bool shared_experts,
                   struct erg_grid_estimate *estimate, struct erg_error *err);

#endif
