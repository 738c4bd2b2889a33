/*
 * Profiles as they stand in their files: rows of prof_optimal.csv and dp_mem.csv, each checked by
 * itself. What follows from them is profiles.c's.
 */
#ifndef ERG_CLUSTER_PROFILES_INTERNAL_H
#define ERG_CLUSTER_PROFILES_INTERNAL_H

#include "cluster/speeds.h"
#include "io/csv.h"

/* A model at a batch: what rows of both files are about. */
struct erg_profile_model {
    const char *family, *size; /* of the CSV */
    double parameters;
    long batch;
};

struct erg_profiles {
    struct erg_csv *times, *memory; /* memory: NULL where the folder has none */
    struct {
        struct erg_profile_model *items;
        size_t count, capacity;
    } models;
    struct {
        struct erg_profile_row {
            size_t model, row;
            struct erg_gpu_shape shape;
            double time_s;  /* -1: cannot run */
            double power_w; /* of one GPU; NAN: not said */
        } * items;
        size_t count, capacity;
    } rows; /* of GPU types that the fleet has */
    struct {
        struct erg_profile_replica {
            size_t model;
            int gpus;
            double bytes; /* INFINITY: does not fit */
        } * items;
        size_t count, capacity;
    } replicas;
    struct {
        int *items; /* GPU counts, rising */
        size_t count, capacity;
    } counts;
};

/* Starts from all-zero; to be released, also after a failure. */
int erg_profiles_read(struct erg_profiles *profiles, const char *folder,
                      const struct erg_fleet *fleet, struct erg_error *err);
void erg_profiles_release(struct erg_profiles *profiles);

/* "2.6B" is 2.6e9; false where the text is no size. */
bool erg_profiles_size(const char *text, double *parameters);

/* The model's index, or the number of models. */
size_t erg_profiles_find(const struct erg_profiles *profiles,
                         const struct erg_profile_model *model);

#endif
