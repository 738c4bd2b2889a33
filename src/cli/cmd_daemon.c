/* ergon daemon: lends clocks and power limits of GPUs to programs that may not set them. */
#include "cli/answer_show.h"
#include "cli/cli.h"
#include "serve/daemon_serve.h"

#include <stdio.h>
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

static int change_grant(const char *what, const struct daemon_values *values, const char *socket,
                        struct erg_error *err)
{
    const bool grants = strcmp(what, "grant") == 0;
    if (values->job == ERG_NOT_GIVEN || (grants && (values->uid == ERG_NOT_GIVEN || !values->gpus)))
        return erg_fail(err, ERG_USAGE, "\"ergon daemon %s\" needs %s", what,
                        grants ? "--job, --uid and --gpus" : "--job");
    const struct erg_grant grant = {.size = sizeof grant,
                                    .socket = socket,
                                    .job = values->job,
                                    .uid = grants ? values->uid : 0,
                                    .gpus = grants ? values->gpus : NULL};
    return erg_grant_gpus(&grant, err);
}

static int ask(const char *what, const struct erg_invocation *call, struct erg_error *err)
{
    const struct daemon_values *values = call->values;
    char path[4096];
    snprintf(path, sizeof path, "%s%s", values->socket ? values->socket : values->folder,
             values->socket ? "" : "/ergond.sock");
    if (strcmp(what, "grant") == 0 || strcmp(what, "revoke") == 0)
        return change_grant(what, values, path, err);
    if (strcmp(what, "show") != 0)
        return erg_fail(err, ERG_USAGE,
                        "\"ergon daemon\" got \"%s\", expected grant, revoke or show", what);
    const struct erg_ask_daemon question = {.size = sizeof question, .socket = path};
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_daemon(&answer, &question, err), &answer, call->common.json,
                           err);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct daemon_values *values = call->values;
    const struct erg_daemon_input input = {.config = values->config,
                                           .folder = values->folder,
                                           .socket = values->socket,
                                           .zeusd = values->zeusd,
                                           .restore = values->restore};
    const char *what = call->argument_count ? call->arguments[0] : NULL;
    if (call->common.json && !(what && strcmp(what, "show") == 0))
        return erg_fail(
            err, ERG_USAGE,
            "--json was given without show; expected it only for show, which prints the GPUs");
    return what ? ask(what, call, err) : erg_daemon_serve(&input, err);
}

static const char *const tasks[] = {"grant", "revoke", "show", NULL};

const struct erg_command erg_cmd_daemon = {
    .name = "daemon",
    .summary = "lend clocks and power limits of GPUs to programs without root privileges",
    .arguments = "[grant|revoke|show]",
    .argument_choices = tasks,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
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
                "  ergon daemon show\n"
                "  ergon daemon show --json\n",
    .run = run,
};
