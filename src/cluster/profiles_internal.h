/*
 * Profiles as in their files: rows of prof_optimal.csv, each checked by itself. profiles.c derives
 * speeds from them.
 */
#ifndef ERG_CLUSTER_PROFILES_INTERNAL_H
#define ERG_CLUSTER_PROFILES_INTERNAL_H

#include "cluster/speed_table.h"
#include "io/csv.h"

/* A model at a batch. */
struct erg_profile_model {
    const char *family, *size; /* of the CSV */
    double parameters;
    long batch;
};

struct erg_profiles {
    struct erg_csv *times;
    struct {
        struct erg_profile_model *items;
        size_t count, capacity;
    } models;
    struct {
        struct erg_profile_row {
            size_t model, row;
            struct erg_gpu_shape shape;
            double time_s;  /* -1: cannot run */
            double power_w; /* of one GPU; NAN: not given */
        } * items;
        size_t count, capacity;
    } rows; /* of GPU types in the fleet */
    struct {
        int *items; /* GPU counts, rising */
        size_t count, capacity;
    } counts;
};

/* Fills a zeroed struct; release it, also after an error. */
int erg_profiles_read(struct erg_profiles *profiles, const char *folder,
                      const struct erg_fleet *fleet, struct erg_error *err);
/* The same of a table from memory; `name` stands for the file in messages. */
int erg_profiles_parse(struct erg_profiles *profiles, const char *name, const char *text,
                       size_t length, const struct erg_fleet *fleet, struct erg_error *err);
void erg_profiles_release(struct erg_profiles *profiles);

/* The speed of a workload on a shape by a row with `samples_per_s`, times `factor` where the row
 * has another shape or size. */
struct erg_speed_rule {
    double (*speed)(const void *context, const struct erg_trace_workload *what,
                    const struct erg_gpu_shape *shape, double samples_per_s, double factor);
    const void *context;
};

/* A new table; without a rule the product of both numbers. */
int erg_profiles_speeds(struct erg_speeds **speeds, const struct erg_profiles *profiles,
                        const struct erg_fleet *fleet, const struct erg_job_trace *trace,
                        const struct erg_speed_rule *rule, struct erg_error *err);

/* "2.6B" is 2.6e9; false where the text is not a size. */
bool erg_profiles_size(const char *text, double *parameters);

/* The model's index, or the number of models. */
size_t erg_profiles_find(const struct erg_profiles *profiles,
                         const struct erg_profile_model *model);

#endif
