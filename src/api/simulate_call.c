/* Simulations of a cluster with all that they read and write. */
#define _DEFAULT_SOURCE /* strsep */
#include "api/simulate_call.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cluster/simulate/comparison.h"
#include "cluster/simulate/results.h"
#include "io/file.h"
#include "io/json.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The default time that a node is down after a drawn failure. */
#define REPAIR_S (4 * 3600.0)

/* Whether events and samples are wanted. */
static bool keeps(const struct erg_simulate_input *input)
{
    return input->folder || input->page;
}

/* ---- the question ---- */

static int check_input(const struct erg_simulate_input *input, struct erg_error *err)
{
    if (input->outages && !isnan(input->failure_s))
        return erg_fail(err, ERG_USAGE, "%s exclude each other",
                        input->dashes ? "--outages and --mean-failure" : "outages and failure_s");
    if (!isnan(input->repair_s) && isnan(input->failure_s))
        return erg_fail(err, ERG_USAGE, "%s, whose failures it ends",
                        input->dashes ? "--repair needs --mean-failure"
                                      : "repair_s needs failure_s");
    if (!isnan(input->failure_s) && isinf(input->until_s))
        return erg_fail(err, ERG_USAGE, "%s, which limits the time for which failures are drawn",
                        input->dashes ? "--mean-failure needs --rounds"
                                      : "failure_s needs until_s");
    return 0;
}

static int add_policy(struct erg_simulate_call *at, const char *name, struct erg_error *err)
{
    const struct erg_policy *policy;
    if (erg_policy_find(&policy, name, err) != 0)
        return -1;
    for (size_t i = 0; i < at->policies.count; i++)
        if (at->policies.items[i] == policy)
            return erg_fail(err, ERG_USAGE, "%s: '%s' is listed twice",
                            at->input->dashes ? "--policy" : "policies", name);
    ERG_PUSH(&at->policies, items, policy);
    return 0;
}

static int parse_policies(struct erg_simulate_call *at, struct erg_error *err)
{
    char *names = erg_xstrdup(at->input->policies), *rest = names, *name;
    int status = 0;
    while (status == 0 && (name = strsep(&rest, ",")))
        status = add_policy(at, name, err);
    free(names);
    return status;
}

static int prepare(struct erg_simulate_call *at, struct erg_error *err)
{
    const struct erg_simulate_input *input = at->input;
    struct erg_simulation *simulation = &at->simulation;
    if (parse_policies(at, err) != 0 || erg_fleet_load(&at->fleet, input->cluster, err) != 0 ||
        erg_job_trace_load(&at->trace, input->trace, at->fleet, err) != 0 ||
        erg_speeds_load(&at->speeds, input->profiles, at->fleet, at->trace, err) != 0)
        return -1;
    simulation->work = input->work;
    simulation->until_s = input->until_s;
    if (input->tariff && erg_tariff_load(&at->tariff, input->tariff, err) != 0)
        return -1;
    if (input->outages && erg_outages_load(&at->outages, input->outages, at->fleet, err) != 0)
        return -1;
    if (!isnan(input->failure_s))
        erg_outages_draw(&at->outages, at->fleet, input->failure_s,
                         isnan(input->repair_s) ? REPAIR_S : input->repair_s, simulation->until_s,
                         input->seed);
    if (at->trace->inversions > 0)
        erg_log(ERG_LOG_WARNING,
                "%s:%zu: job '%s' was submitted before the one above it, as %s %zu job%s in all; "
                "they are taken by their times",
                at->trace->path, at->trace->jobs[at->trace->first_inversion].line,
                at->trace->jobs[at->trace->first_inversion].id,
                at->trace->inversions == 1 ? "was" : "were", at->trace->inversions,
                erg_plural(at->trace->inversions));
    simulation->fleet = at->fleet;
    simulation->trace = at->trace;
    simulation->speeds = at->speeds;
    simulation->power_cap_w = input->power_cap_w;
    simulation->tariff = input->tariff ? &at->tariff : NULL;
    simulation->outages = at->outages.items;
    simulation->outages_count = at->outages.count;
    simulation->keep_events = simulation->keep_samples = keeps(input);
    return 0;
}

/* ---- the answer ---- */

static void warn_of_unserved(const struct erg_simulate_call *at, const struct erg_simulated *result)
{
    struct erg_text message = {0};
    for (size_t i = 0; i < result->unserved_count; i++) {
        message.count = 0;
        erg_unserved_text(&message, &result->unserved[i], at->trace, at->fleet,
                          at->simulation.policy->name);
        erg_log(ERG_LOG_WARNING, "%s", message.data);
    }
    erg_text_release(&message);
}

static int simulate(struct erg_simulate_call *at, const struct erg_policy *policy,
                    struct erg_error *err)
{
    const struct erg_simulate_input *input = at->input;
    struct erg_simulated result;
    at->simulation.policy = policy;
    if (erg_simulate(&result, &at->simulation, err) != 0)
        return -1;
    int status = 0;
    erg_log(ERG_LOG_INFO, "%s: simulated in %.3f CPU s", policy->name, result.summary.cpu_s);
    warn_of_unserved(at, &result);
    if (input->folder) {
        struct erg_text folder = {0};
        erg_text_add(&folder, input->folder);
        if (at->policies.count > 1)
            erg_text_printf(&folder, "/%s", policy->name);
        status = erg_simulated_write(&result, &at->simulation, folder.data, err);
        erg_text_release(&folder);
    }
    if (keeps(input)) {
        if (!at->comparison)
            at->comparison = erg_comparison_new(&at->simulation);
        erg_comparison_add(at->comparison, &result, &at->simulation);
    }
    json_array_append_new(at->documents, erg_simulated_document(&result, &at->simulation));
    if (status == 0 && input->each)
        input->each(input->context, at, &result);
    erg_simulated_release(&result);
    return status;
}

static int write_page(const struct erg_simulate_call *at, struct erg_error *err)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/report.html", at->input->folder);
    int status = erg_report_cluster_write(path.data, at->comparison, err);
    erg_text_release(&path);
    return status;
}

int erg_simulate_call_run(struct erg_simulate_call *at, const struct erg_simulate_input *input,
                          struct erg_error *err)
{
    *at = (struct erg_simulate_call){.input = input, .documents = json_array()};
    int status = check_input(input, err) != 0 || prepare(at, err) != 0 ? -1 : 0;
    if (status == 0 && input->folder)
        status = erg_dir_make(input->folder, err);
    for (size_t i = 0; i < at->policies.count && status == 0; i++)
        status = simulate(at, at->policies.items[i], err);
    if (status == 0 && input->folder)
        status = write_page(at, err);
    return status;
}

json_t *erg_simulate_call_document(const struct erg_simulate_call *at)
{
    return at->policies.count == 1 ? json_incref(json_array_get(at->documents, 0))
                                   : erg_json_pack("{s:s, s:i, s:O}", "schema", "ergon.simulations",
                                                   "schema_version", 1, "policies", at->documents);
}

void erg_simulate_call_release(struct erg_simulate_call *at)
{
    json_decref(at->comparison);
    json_decref(at->documents);
    free(at->policies.items);
    erg_outages_release(&at->outages);
    erg_tariff_release(&at->tariff);
    erg_speeds_free(at->speeds);
    erg_job_trace_free(at->trace);
    erg_fleet_free(at->fleet);
}
