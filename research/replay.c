/*
 * replay CLUSTER.yaml TRACE.csv --policy P --profiles DIR [--rounds N] [--json]: a trace under the
 * accounting of Arena's published comparison (artifact.h).
 */
#include "artifact.h"
#include "cluster/simulate/results.h"
#include "io/json.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_S 300

struct request {
    const char *cluster, *trace, *policy, *profiles;
    double rounds; /* INFINITY: until no job runs and none can */
    bool json;
};

static int parse(struct request *request, int argc, char **argv, struct erg_error *err)
{
    const char *rounds = NULL;
    struct {
        const char *name, **value;
    } options[] = {
        {"--policy", &request->policy}, {"--profiles", &request->profiles}, {"--rounds", &rounds}};
    enum { OPTIONS = sizeof options / sizeof *options };
    *request = (struct request){.rounds = INFINITY};
    for (int i = 1; i < argc; i++) {
        int option = 0;
        while (option < OPTIONS && strcmp(argv[i], options[option].name) != 0)
            option++;
        if (!strcmp(argv[i], "--json"))
            request->json = true;
        else if (option < OPTIONS && i + 1 < argc)
            *options[option].value = argv[++i];
        else if (argv[i][0] != '-' && !request->cluster)
            request->cluster = argv[i];
        else if (argv[i][0] != '-' && !request->trace)
            request->trace = argv[i];
        else
            return erg_fail(err, ERG_USAGE, "'%s' is one argument too many, or lacks its value",
                            argv[i]);
    }
    if (!request->trace || !request->policy || !request->profiles)
        return erg_fail(err, ERG_USAGE,
                        "expected CLUSTER.yaml TRACE.csv --policy NAME --profiles DIR "
                        "[--rounds N] [--json]");
    if (rounds && (!erg_parse_double(rounds, &request->rounds) || !(request->rounds >= 1)))
        return erg_fail(err, ERG_USAGE, "--rounds: expected a number of rounds of %d s, got '%s'",
                        ROUND_S, rounds);
    return 0;
}

/* The library's document with what is the artifact's. */
static json_t *document_of(const struct erg_simulated *result,
                           const struct erg_simulation *simulation)
{
    json_t *plain = erg_simulated_document(result, simulation), *document = json_object(), *value;
    const char *key;
    json_object_foreach(plain, key, value)
    {
        json_object_set(document, key, value);
        if (!strcmp(key, "policy"))
            json_object_set_new(document, "accounting", json_string("artifact"));
        if (!strcmp(key, "simulated_s"))
            json_object_set_new(document, "cpu_s", erg_json_number(result->summary.cpu_s));
    }
    json_decref(plain);
    return document;
}

static void print(const struct request *request, const struct erg_simulated *result,
                  const struct erg_simulation *simulation)
{
    const struct erg_summary *summary = &result->summary;
    if (!request->json) {
        printf("%s: %ld of %ld jobs finished, completion %.0f s on average, %.0f samples/s, at "
               "most %.0f\n",
               request->policy, summary->finished_jobs, summary->submitted_jobs,
               summary->mean_jct_s, summary->mean_throughput, summary->peak_throughput);
        return;
    }
    json_t *document = document_of(result, simulation);
    char *text = erg_json_text(document);
    fputs(text, stdout);
    free(text);
    json_decref(document);
}

static int replay(const struct request *request, struct erg_error *err)
{
    struct erg_fleet *fleet = NULL;
    struct erg_job_trace *trace = NULL;
    struct artifact artifact = {0};
    struct erg_simulated result;
    struct erg_simulation simulation = {.accounting = &artifact.rules,
                                        .work = 1,
                                        .until_s = ROUND_S * request->rounds,
                                        .power_cap_w = INFINITY};
    int status = -1;
    if (artifact_policy_find(&simulation.policy, request->policy, err) != 0 ||
        erg_fleet_load(&fleet, request->cluster, err) != 0)
        return -1;
    if (fleet->saves_power)
        erg_fail(err, ERG_FAILED,
                 "%s: the published comparison knows no power saving: expected no key power_saving",
                 request->cluster);
    else if (erg_job_trace_load(&trace, request->trace, fleet, err) == 0)
        status = artifact_load(&artifact, request->profiles, fleet, trace, err);
    simulation.fleet = fleet;
    simulation.trace = trace;
    simulation.speeds = artifact.speeds;
    if (status == 0)
        status = erg_simulate(&result, &simulation, err);
    if (status == 0) {
        print(request, &result, &simulation);
        erg_simulated_release(&result);
    }
    artifact_release(&artifact);
    erg_job_trace_free(trace);
    erg_fleet_free(fleet);
    return status;
}

int main(int argc, char **argv)
{
    struct request request;
    struct erg_error err = {0};
    if (parse(&request, argc, argv, &err) == 0 && replay(&request, &err) == 0)
        return ferror(stdout) || fflush(stdout) != 0 ? ERG_FAILED : ERG_OK;
    fprintf(stderr, "replay: %s\n", err.message);
    return (int)err.status;
}
