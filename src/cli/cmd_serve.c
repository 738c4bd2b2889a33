/* ergon serve: serves metrics of all GPUs to Prometheus, and the clocks of a plan to other
 * trainers. */
#include "cli/cli.h"
#include "serve/serve.h"

struct serve_values {
    const char *listen, *gpus, *plan, *record, *token;
    long interval_ms, point;
};

#define AT(member) offsetof(struct serve_values, member)
static const struct erg_option options[] = {
    {"listen", 'l', ERG_OPTION_TEXT, "ADDRESS:PORT", AT(listen),
     .help = "address and port; \"[::]:9464\" or \"0.0.0.0:9464\" for all interfaces, port 0 for "
             "any free one (default: 127.0.0.1:9464, with --plan 127.0.0.1:7787)"},
    {"gpus", 'g', ERG_OPTION_TEXT, "LIST", AT(gpus),
     .help = "\"all\", or indices and UUIDs separated by commas (default: CUDA_VISIBLE_DEVICES)"},
    {"interval", 'i', ERG_OPTION_LONG, "MS", AT(interval_ms), 5, 60000, .default_text = "100",
     .help = "time between two readings of power; a scrape returns the newest"},
    {"plan", 'p', ERG_OPTION_FILE, "PLAN.json", AT(plan),
     .help = "serve the clocks of this plan to trainers, with Zeus' protocol"},
    {"point", 0, ERG_OPTION_LONG, "N", AT(point), 1, 1e9,
     .help = "number of the plan's point; 1 is the fastest (default: the selected one, if it is of "
             "sequential+clocks)"},
    {"record", 0, ERG_OPTION_FILE, "FOLDER", AT(record),
     .help = "store the results that trainers report in this folder"},
    {"token", 't', ERG_OPTION_FILE, "FILE", AT(token),
     .help = "answer only requests that contain the token in this file"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct serve_values *values = call->values;
    const struct erg_serve_options input = {
        .listen = values->listen ? values->listen
                  : values->plan ? "127.0.0.1:7787"
                                 : "127.0.0.1:9464",
        .gpus = values->gpus,
        .plan = values->plan,
        .point = (size_t)erg_given_number(values->point),
        .record = values->record,
        .token = values->token,
        .interval_ms = values->interval_ms,
    };
    return erg_serve(stdout, &input, err);
}

const struct erg_command erg_cmd_serve = {
    .name = "serve",
    .summary = "serve metrics of GPUs to Prometheus, and a plan's clocks to trainers",
    .arguments = "",
    .common = ERG_COMMON_FEW,
    .values_bytes = sizeof(struct serve_values),
    .options = options,
    .details = "Prints the address of the metrics and answers until Ctrl-C or SIGTERM. A scrape "
               "returns the newest\n"
               "readings at once, even while a GPU hangs: its values are then left out and its "
               "ergon_gpu_up is 0.\n"
               "With --plan, trainers that use Zeus' PipelineFrequencyOptimizer get the clocks of "
               "their stage from\n"
               "the address printed first, their server_url; a changed plan is loaded again. "
               "Default: reachable from\n"
               "this machine only (see --listen).",
    .examples =
        "  ergon serve\n"
        "  ergon serve --listen 0.0.0.0:9464 --gpus all\n"
        "  curl http://127.0.0.1:9464/metrics\n"
        "  ergon serve --plan plan.json\n"
        "  ergon serve --plan plan.json --listen 0.0.0.0:7787 --token token --record results\n",
    .run = run,
};
