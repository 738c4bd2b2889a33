/* The status of a controller as metrics. */
#include "serve/schedule_metrics.h"

#include "cluster/live/live_engine.h"
#include "cluster/live/reconcile.h"
#include "cluster/live/schedule_counts.h"
#include "observe/openmetrics.h"

#include <math.h>
#include <string.h>

static void add_policy(struct erg_text *out, const json_t *status)
{
    erg_openmetrics_add_family(out, "ergon_schedule", "info", "", "Policy of the controller.");
    erg_text_add(out, "ergon_schedule_info{");
    erg_openmetrics_add_label(out, "policy", erg_schedule_string(status, "policy"));
    erg_text_add(out, "} 1\n");
}

/* Writes one number, if it is known. */
static void add_number(struct erg_text *out, const char *name, const char *type, const char *unit,
                       const char *help, double value)
{
    if (isnan(value))
        return;
    erg_openmetrics_add_family(out, name, type, unit, help);
    erg_text_printf(out, "%s%s %.15g\n", name, strcmp(type, "counter") == 0 ? "_total" : "", value);
}

enum { PHASES = ERG_PHASE_UNKNOWN + 1, STATES = ERG_NODE_UNKNOWN + 1 };

/* All phases, so that one without a job is 0. */
static void add_jobs(struct erg_text *out, const json_t *status)
{
    size_t counts[PHASES] = {0}, attention = 0, i;
    const json_t *jobs = json_object_get(status, "jobs"), *job;
    json_array_foreach(jobs, i, job)
    {
        const char *phase = erg_schedule_string(job, "phase");
        int p = 0;
        while (p + 1 < PHASES && strcmp(erg_live_phase_name((enum erg_live_phase)p), phase) != 0)
            p++;
        counts[p]++;
        attention += erg_schedule_flag(job, "needs_attention");
    }
    erg_openmetrics_add_family(out, "ergon_schedule_jobs", "gauge", "", "Managed jobs by phase.");
    for (int p = 0; p < PHASES; p++)
        erg_text_printf(out, "ergon_schedule_jobs{phase=\"%s\"} %zu\n",
                        erg_live_phase_name((enum erg_live_phase)p), counts[p]);
    add_number(out, "ergon_schedule_jobs_needing_attention", "gauge", "",
               "Managed jobs that need attention.", (double)attention);
}

static void add_gpus(struct erg_text *out, const struct erg_schedule_counts *counts)
{
    static const char name[] = "ergon_schedule_gpus";
    erg_openmetrics_add_family(out, name, "gauge", "",
                               "GPUs by type: with a managed job, with a foreign one, free, or "
                               "unavailable because their node is not up.");
    for (size_t t = 0; t < counts->count; t++)
        for (int use = 0; use < ERG_GPU_USES; use++) {
            erg_text_printf(out, "%s{", name);
            erg_openmetrics_add_label(out, "type", counts->types[t].name);
            erg_text_printf(out, ",state=\"%s\"} %zu\n", erg_gpu_use_names[use],
                            counts->types[t].gpus[use]);
        }
}

/* A node's state as a number that can be summed by type. */
static void add_nodes(struct erg_text *out, const json_t *status,
                      const struct erg_schedule_counts *counts)
{
    static const char name[] = "ergon_schedule_nodes";
    erg_openmetrics_add_family(out, name, "gauge", "", "Nodes by type and state.");
    for (size_t t = 0; t < counts->count; t++)
        for (int s = 0; s < STATES; s++) {
            const char *state = erg_live_node_state_name((enum erg_live_node_state)s);
            size_t count = 0, n;
            const json_t *node;
            json_array_foreach(json_object_get(status, "nodes"), n, node) count +=
                strcmp(erg_schedule_string(node, "type"), counts->types[t].name) == 0 &&
                strcmp(erg_schedule_string(node, "state"), state) == 0;
            erg_text_printf(out, "%s{", name);
            erg_openmetrics_add_label(out, "type", counts->types[t].name);
            erg_text_printf(out, ",state=\"%s\"} %zu\n", state, count);
        }
}

void erg_schedule_metrics(struct erg_text *out, const json_t *status)
{
    struct erg_schedule_counts counts;
    const json_t *power = json_object_get(status, "power");
    erg_openmetrics_add_build(out);
    if (!status)
        return;
    erg_schedule_count(&counts, status);
    add_policy(out, status);
    add_number(out, "ergon_schedule_resource_manager_up", "gauge", "",
               "1 while the resource manager answers.", erg_schedule_flag(status, "answers"));
    add_jobs(out, status);
    add_gpus(out, &counts);
    add_nodes(out, status, &counts);
    add_number(out, "ergon_schedule_power_watts", "gauge", "watts",
               "Power of all nodes at the operating points of their jobs, from the profiles.",
               erg_json_number_or(power, "now_w", NAN));
    add_number(out, "ergon_schedule_power_idle_watts", "gauge", "watts",
               "Power of all nodes without jobs.", erg_json_number_or(power, "idle_w", NAN));
    add_number(out, "ergon_schedule_power_cap_watts", "gauge", "watts", "The power cap.",
               erg_json_number_or(power, "cap_w", NAN));
    add_number(out, "ergon_schedule_decisions", "counter", "",
               "Decisions of the policy since the controller started.",
               erg_json_number_or(status, "decisions", NAN));
    add_number(out, "ergon_schedule_actions", "counter", "",
               "Actions requested from the resource manager since the controller started.",
               erg_json_number_or(status, "actions", NAN));
    add_number(out, "ergon_schedule_actions_failed", "counter", "",
               "Requested actions that failed.", erg_json_number_or(status, "actions_failed", NAN));
    erg_schedule_counts_release(&counts);
}

void erg_schedule_metrics_age(struct erg_text *out, double age_s)
{
    add_number(out, "ergon_schedule_snapshot_age_seconds", "gauge", "seconds",
               "Time since the last snapshot from the resource manager.", age_s);
}
