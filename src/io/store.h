/*
 * Store: every measurement ever made, in one SQLite file, so that none is made twice or lost.
 *
 * A row is one measurement of one piece of work on one device under one schedule. Its key is
 * (device, signature, clock, slot, SMs, kind, repeat); the first measurement of a key stays, later
 * ones are ignored. A put is on the disk when the call returns (WAL, synchronous=FULL), so a killed
 * run continues where it was. Several processes and threads may use one file at the same time.
 *
 * A file of another program, of a newer ergon, or a damaged one is refused and left untouched.
 * Energies are per GPU, in joules, for one execution of the work.
 */
#ifndef ERG_IO_STORE_H
#define ERG_IO_STORE_H

#include "ergon/error.h"
#include "io/measurement.h"

#include <stdbool.h>
#include <stdint.h>

struct erg_store;

enum erg_store_kind {
    ERG_STORE_FULL,      /* time and energy, over a whole window */
    ERG_STORE_TIME_ONLY, /* a short run: energy is NaN */
};

/* The key of a measurement. The texts are borrowed. */
struct erg_store_key {
    const char *device;    /* the device's identity: what makes its results differ from others' */
    const char *signature; /* of the work: a hash of its ops and communication */
    int clock_mhz;         /* as asked for */
    int slot;              /* index of the op before which the communication starts */
    int sms;               /* of the communication kernel */
    enum erg_store_kind kind;
    int64_t repeat; /* 0, 1, … for repeated measurements of the same thing */
};

struct erg_store_row {
    struct erg_store_key key;
    const char *work_name; /* for people: "fwd_attn of Llama 3.2 3B, TP8, 4 x 4096" */
    const char *slot_name; /* "norm_0" */
    struct erg_measurement value;
    const char *created_utc; /* when reading; ignored by put */
};

/* Opens the file, or makes it; its folder must exist. */
int erg_store_open(struct erg_store **store, const char *path, struct erg_error *err);
void erg_store_close(struct erg_store *store);

/* *found: whether there is one; *value is filled only then. */
int erg_store_get(struct erg_store *store, const struct erg_store_key *key,
                  struct erg_measurement *value, bool *found, struct erg_error *err);

/* *inserted (may be NULL) is false when the key was there already. */
int erg_store_put(struct erg_store *store, const struct erg_store_row *row, bool *inserted,
                  struct erg_error *err);

/*
 * Calls visit() for each row in the order in which they were put; the row is valid only inside
 * the call, which must not use the store. A nonzero result of visit() ends the walk and is
 * returned.
 */
int erg_store_each(struct erg_store *store,
                   int (*visit)(void *context, const struct erg_store_row *row,
                                struct erg_error *err),
                   void *context, struct erg_error *err);

/* All rows with a header, written in one step. */
int erg_store_export_csv(struct erg_store *store, const char *path, struct erg_error *err);

#endif
