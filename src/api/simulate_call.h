/*
 * Simulations of a trace on a cluster under one or several policies, with the files that they read
 * and write.
 */
#ifndef ERG_API_SIMULATE_CALL_H
#define ERG_API_SIMULATE_CALL_H

#include "cluster/simulate/outages.h"
#include "cluster/simulate/simulation.h"

#include <jansson.h>

struct erg_simulate_call;

/* NULL texts and NAN numbers are not given. */
struct erg_simulate_input {
    bool dashes; /* messages name inputs as options of the command line */
    const char *cluster, *trace, *policies, *profiles;
    const char *tariff, *outages, *folder;
    double until_s, power_cap_w; /* INFINITY: no bound */
    double work;
    double failure_s, repair_s; /* of drawn failures */
    uint64_t seed;
    bool page; /* the comparison is kept, also without a folder */
    /* After each policy. NULL: not wanted. */
    void (*each)(void *context, const struct erg_simulate_call *at,
                 const struct erg_simulated *result);
    void *context;
};

struct erg_simulate_call {
    const struct erg_simulate_input *input;
    struct erg_simulation simulation; /* of the policy that is simulated now */
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct erg_speeds *speeds;
    struct erg_outages outages;
    struct erg_tariff tariff;
    struct {
        const struct erg_policy **items;
        size_t count, capacity;
    } policies;
    json_t *documents;  /* summaries, in the order of the policies */
    json_t *comparison; /* for a page; NULL: none is wanted */
};

/* Takes a program's options; nothing is done after a policy. */
struct erg_simulations_options;
int erg_simulate_call_take(struct erg_simulate_input *input,
                           const struct erg_simulations_options *options, struct erg_error *err);

/* The caller releases it in any case; the input must outlive it. */
int erg_simulate_call_run(struct erg_simulate_call *at, const struct erg_simulate_input *input,
                          struct erg_error *err);
void erg_simulate_call_release(struct erg_simulate_call *at);

/* One summary, or those of several policies; a new reference. */
json_t *erg_simulate_call_document(const struct erg_simulate_call *at);

#endif
