/* ergon daemon: lends clocks and power limits of GPUs to programs that may not set them. */
#include "cli/cli.h"

#include "base/memory.h"
#include "daemon/daemon.h"
#include "serve/zeusd.h"
#include "telemetry/daemon_client.h"
#include "telemetry/gpu_bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct daemon_values {
    const char *config, *folder, *socket, *zeusd, *gpus;
    bool restore;
    long job, uid;
};

#define AT(member) offsetof(struct daemon_values, member)
static const struct erg_option options[] = {
    {"config", 'c', ERG_OPTION_FILE, "FILE", AT(config), .default_text = "/etc/ergon/ergond.yaml",
     .help = "rules: which users may set what, on which GPUs, within which limits"},
    {"folder", 'f', ERG_OPTION_FILE, "FOLDER", AT(folder), .default_text = "/run/ergon",
     .help = "folder of the socket and of the state that survives a crash of the daemon"},
    {"socket", 's', ERG_OPTION_FILE, "PATH", AT(socket),
     .help = "socket of the daemon (default: FOLDER/ergond.sock)"},
    {"zeusd", 'z', ERG_OPTION_FILE, "PATH", AT(zeusd),
     .help = "also listen on this socket for clients of zeusd (their ZEUSD_SOCK_PATH)"},
    {"restore", 'r', ERG_OPTION_FLAG, NULL, AT(restore),
     .help = "restore the settings that a killed daemon left changed, and exit"},
    {"job", 'j', ERG_OPTION_LONG, "JOB", AT(job), 1, UINT32_MAX, .help = "Slurm job of a grant"},
    {"uid", 'u', ERG_OPTION_LONG, "UID", AT(uid), 0, UINT32_MAX, .help = "user of a grant"},
    {"gpus", 'g', ERG_OPTION_TEXT, "LIST", AT(gpus),
     .help = "GPUs of a grant: \"all\", or indices separated by commas, as in SLURM_JOB_GPUS"},
    {0},
};

/* ---- requests to a running daemon ---- */

static int change_grant(struct erg_daemon_client *client, const struct daemon_values *values,
                        bool grants, uint32_t count, struct erg_error *err)
{
    struct erg_wire_request request = {.type = grants ? ERG_WIRE_GRANT : ERG_WIRE_REVOKE,
                                       .job = (uint32_t)values->job,
                                       .uid = (uint32_t)values->uid};
    if (values->job == ERG_NOT_GIVEN || (grants && (values->uid == ERG_NOT_GIVEN || !values->gpus)))
        return erg_fail(err, ERG_USAGE, "\"ergon daemon %s\" needs %s", grants ? "grant" : "revoke",
                        grants ? "--job, --uid and --gpus" : "--job");
    struct erg_error gpus;
    if (grants && erg_gpu_bits(values->gpus, count, NULL, &request.gpus, &gpus) != 0)
        return erg_fail(err, ERG_USAGE, "--gpus got \"%s\": %s", values->gpus, gpus.message);
    return erg_daemon_exchange(client, &request, NULL, err);
}

static void show_knob(const struct erg_wire_gpu *gpu, enum erg_knob knob)
{
    double unit = knob == ERG_KNOB_POWER ? 1e-3 : 1;
    printf("  %-6s %6.0f to %6.0f %s  %s", erg_knob_name(knob), unit * gpu->least[knob],
           unit * gpu->most[knob], knob == ERG_KNOB_POWER ? "W  " : "MHz",
           gpu->rights >> knob & 1 ? "allowed" : "not allowed");
    if (gpu->holders[knob] >= 0)
        printf(", held by user %lld", (long long)gpu->holders[knob]);
    putchar('\n');
}

static int show(struct erg_daemon_client *client, const struct erg_wire_hello *hello,
                struct erg_error *err)
{
    for (uint32_t i = 0; i < hello->gpus; i++) {
        struct erg_wire_gpu gpu;
        if (erg_daemon_ask_gpu(client, i, &gpu, err) != 0)
            return -1;
        printf("GPU %u  %s  %s\n", (unsigned)i, gpu.uuid, gpu.name);
        for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++)
            show_knob(&gpu, knob);
    }
    return 0;
}

static int ask(const char *what, const struct daemon_values *values, struct erg_error *err)
{
    char path[4096];
    struct erg_daemon_client *client;
    struct erg_wire_hello hello;
    bool grants = strcmp(what, "grant") == 0;
    if (!grants && strcmp(what, "revoke") != 0 && strcmp(what, "show") != 0)
        return erg_fail(err, ERG_USAGE,
                        "\"ergon daemon\" got \"%s\", expected grant, revoke or show", what);
    snprintf(path, sizeof path, "%s%s", values->socket ? values->socket : values->folder,
             values->socket ? "" : "/ergond.sock");
    if (erg_daemon_connect(&client, path, &hello, err) != 0)
        return -1;
    int result = strcmp(what, "show") == 0 ? show(client, &hello, err)
                                           : change_grant(client, values, grants, hello.gpus, err);
    erg_daemon_disconnect(client);
    return result;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct daemon_values *values = call->values;
    struct erg_daemon_options daemon = {.config = values->config,
                                        .folder = values->folder,
                                        .socket = values->socket,
                                        .proc = "/proc"};
    if (call->argument_count)
        return ask(call->arguments[0], values, err);
    if (values->restore)
        return erg_daemon_restore(&daemon, err);
    struct erg_zeusd *zeusd = NULL;
    if (values->zeusd) {
        if (erg_zeusd_new(&zeusd, values->zeusd, &daemon.guests, err) != 0)
            return -1;
        daemon.opened = erg_zeusd_listen;
        daemon.context = zeusd;
    }
    int result = erg_daemon_run(&daemon, err);
    erg_zeusd_free(zeusd);
    return result;
}

static const char *const tasks[] = {"grant", "revoke", "show", NULL};

const struct erg_command erg_cmd_daemon = {
    .name = "daemon",
    .summary = "lend clocks and power limits of GPUs to programs without root privileges",
    .arguments = "[grant|revoke|show]",
    .argument_choices = tasks,
    .most_arguments = 1,
    .common = ERG_COMMON_FEW,
    .values_bytes = sizeof(struct daemon_values),
    .options = options,
    .details = "Runs in the foreground, as root, until SIGTERM. SIGHUP reads the rules again. When "
               "a program ends,\n"
               "even by a crash, the daemon restores the settings that it changed. \"grant\" and "
               "\"revoke\" set the\n"
               "GPUs of a job; they belong into Slurm's prolog and epilog. \"show\" lists the "
               "GPUs, their settings\n"
               "and your rights.",
    .examples = "  ergon daemon --config /etc/ergon/ergond.yaml\n"
                "  ergon daemon --zeusd /run/ergon/zeusd.sock\n"
                "  ergon daemon grant --job $SLURM_JOB_ID --uid $SLURM_JOB_UID --gpus "
                "$SLURM_JOB_GPUS\n"
                "  ergon daemon revoke --job $SLURM_JOB_ID\n"
                "  ergon daemon show\n",
    .run = run,
};
