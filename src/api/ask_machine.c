/* ergon/ask.h: questions about this machine: what its GPUs can do, and what the daemon lends. */
#include "ergon/ask.h"

#include "api/answer.h"
#include "api/door.h"
#include "base/sized.h"
#include "io/json.h"
#include "io/print.h"
#include "launch/launch.h"
#include "probe/probe_run.h"
#include "probe/probe_thermal.h"
#include "telemetry/daemon_client.h"
#include "telemetry/gpu_bits.h"

#include <math.h>
#include <string.h>

/* ---- what the GPUs can do ---- */

static int check_probe(const struct erg_ask_probe *question, bool emulated, struct erg_error *err)
{
    const size_t length = question->calibrate ? strlen(question->calibrate) : 0;
    if (question->from && question->rows)
        return erg_fail(err, ERG_USAGE,
                        "--from and --rows were both given; expected one of them, since --from "
                        "measures nothing");
    if (question->calibrate &&
        (length < 6 || strcmp(question->calibrate + length - 5, ".yaml") != 0))
        return erg_fail(err, ERG_USAGE,
                        "--calibrate got '%s', expected a file name that ends in .yaml, so that a "
                        "job can name it",
                        question->calibrate);
    if (question->gpus < 0 || question->gpus > 8)
        return erg_fail(err, ERG_USAGE, "gpus got %lld, expected a number from 1 to 8",
                        (long long)question->gpus);
    if (question->gpus && !emulated && !question->from)
        return erg_fail(err, ERG_USAGE,
                        "--gpus is for emulated groups; expected one process per GPU: ergon run -n "
                        "%lld -- ergon probe",
                        (long long)question->gpus);
    return 0;
}

static int check_thermal(const struct erg_ask_probe *question, bool emulated, struct erg_error *err)
{
    const bool makes = question->command || question->turn_s > 0 || emulated;
    if (question->from && question->base && question->calibrate)
        return erg_fail(
            err, ERG_USAGE,
            "--calibrate and --base were both given with --thermal --from; expected --base, a "
            "chassis to compare with the recording, or --calibrate, a chassis to fit");
    if (question->from && makes)
        return erg_fail(err, ERG_USAGE,
                        "--from was given with options of a new recording; expected it without a "
                        "command, --turn and --device");
    if (emulated && question->command)
        return erg_fail(err, ERG_USAGE,
                        "a command was given with --device emulated; expected a command only for "
                        "the GPUs of this machine");
    return 0;
}

static int probe_heat(struct erg_answer *answer, const struct erg_ask_probe *question,
                      bool emulated, struct erg_error *err)
{
    struct erg_probe_thermal request = {
        .from = question->from,
        .keep = question->rows,
        .calibrate = question->calibrate,
        .base = question->base,
        .emulated = emulated,
        .seed = question->seed ? *question->seed : 1,
        .command = question->command,
        .program = question->program,
    };
    return check_thermal(question, emulated, err) != 0 ||
                   erg_door_amount(&request.turn_s, "turn_s", question->turn_s, err) != 0 ||
                   erg_door_amount(&request.until_s, "until_s", question->until_s, err) != 0 ||
                   !erg_answer_pens(answer, err) ||
                   erg_probe_thermal(answer->files[ERG_ANSWER_TEXT], answer->files[ERG_ANSWER_JSON],
                                     &request, err) != 0
               ? -1
               : 0;
}

/* All ranks measure, and one of them concludes. */
static int probe(struct erg_ask_call *at, const struct erg_probe_input *input,
                 struct erg_error *err)
{
    struct erg_probe_run *run;
    int status = erg_probe_run(&run, input, err);
    if (status == 0 && input->leads)
        status = erg_answer_pens(at->answer, err)
                     ? erg_probe_conclude(at->answer->files[ERG_ANSWER_TEXT],
                                          at->answer->files[ERG_ANSWER_JSON], run, err)
                     : -1;
    erg_probe_run_free(run);
    return status;
}

static int probe_rates(struct erg_ask_call *at, const struct erg_ask_probe *question, bool emulated,
                       struct erg_error *err)
{
    const bool real = !emulated && !question->from;
    struct erg_launch_environment env = {0};
    if (question->command || question->turn_s > 0 || question->until_s > 0)
        return erg_fail(err, ERG_USAGE,
                        "a command, --turn or --until was given; expected them only with "
                        "--thermal");
    if (real && erg_launch_environment_read(&env, err) != 0)
        return -1;
    const struct erg_probe_input input = {
        .calibrate = question->calibrate,
        .rows = question->rows,
        .from = question->from,
        .base = question->base,
        .real = real,
        .leads = erg_launch_leads(real),
        .gpus = real             ? env.world
                : question->gpus ? (int)question->gpus
                                 : 2,
        .seed = question->seed ? *question->seed : 1,
    };
    /* No part in what one rank does. */
    const int status = real || input.leads ? probe(at, &input, err) : 0;
    if (!input.leads)
        at->answer = NULL;
    return status;
}

static int ask_probe(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_probe *question = at->question;
    int device;
    if (erg_door_choice(&device, "device", question->device, ERG_WORDS_DEVICE, err) != 0 ||
        check_probe(question, device == ERG_DOOR_EMULATED, err) != 0)
        return -1;
    return question->thermal ? probe_heat(at->answer, question, device == ERG_DOOR_EMULATED, err)
                             : probe_rates(at, question, device == ERG_DOOR_EMULATED, err);
}

int erg_ask_probe(struct erg_answer **answer, const struct erg_ask_probe *question,
                  struct erg_error *err)
{
    struct erg_ask_probe own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_probe", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_probe, &own, own.watch, err);
}

/* ---- what the daemon lends ---- */

static int meet_daemon(struct erg_daemon_client **client, const char *socket,
                       struct erg_wire_hello *hello, struct erg_error *err)
{
    return erg_daemon_connect(client, socket ? socket : ERG_WIRE_DEFAULT_SOCKET, hello, err);
}

static void print_knob(FILE *out, const struct erg_wire_gpu *gpu, enum erg_knob knob)
{
    double unit = knob == ERG_KNOB_POWER ? 1e-3 : 1;
    fprintf(out, "  %-6s %6.0f to %6.0f %s  %s", erg_knob_name(knob), unit * gpu->least[knob],
            unit * gpu->most[knob], knob == ERG_KNOB_POWER ? "W  " : "MHz",
            gpu->rights >> knob & 1 ? "allowed" : "not allowed");
    if (gpu->holders[knob] >= 0)
        fprintf(out, ", held by user %lld", (long long)gpu->holders[knob]);
    putc('\n', out);
}

static json_t *knob_document(const struct erg_wire_gpu *gpu, enum erg_knob knob)
{
    const bool held = gpu->holders[knob] >= 0;
    return erg_json_pack("{s:s, s:s, s:I, s:I, s:b, s:o}", "knob", erg_knob_name(knob), "unit",
                         knob == ERG_KNOB_POWER ? "mW" : "MHz", "least",
                         (json_int_t)gpu->least[knob], "most", (json_int_t)gpu->most[knob],
                         "allowed", (int)(gpu->rights >> knob & 1), "held_by_uid",
                         held ? json_integer((json_int_t)gpu->holders[knob]) : json_null());
}

static int ask_gpus(struct erg_answer *answer, struct erg_daemon_client *client, uint32_t count,
                    struct erg_error *err)
{
    FILE *out = answer->files[ERG_ANSWER_TEXT];
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < count; i++) {
        struct erg_wire_gpu gpu;
        json_t *knobs = json_array();
        if (erg_daemon_ask_gpu(client, i, &gpu, err) != 0) {
            json_decref(knobs);
            json_decref(gpus);
            return -1;
        }
        fprintf(out, "GPU %u  %s  %s\n", (unsigned)i, gpu.uuid, gpu.name);
        for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++) {
            print_knob(out, &gpu, knob);
            json_array_append_new(knobs, knob_document(&gpu, knob));
        }
        json_array_append_new(gpus, erg_json_pack("{s:i, s:s, s:s, s:o}", "index", (int)i, "uuid",
                                                  gpu.uuid, "name", gpu.name, "knobs", knobs));
    }
    erg_print_json(answer->files[ERG_ANSWER_JSON],
                   erg_json_pack("{s:i, s:o}", "schema_version", 1, "gpus", gpus));
    return 0;
}

static int ask_daemon(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_daemon *question = at->question;
    struct erg_daemon_client *client;
    struct erg_wire_hello hello;
    if (!erg_answer_pens(at->answer, err) ||
        meet_daemon(&client, question->socket, &hello, err) != 0)
        return -1;
    const int result = ask_gpus(at->answer, client, hello.gpus, err);
    erg_daemon_disconnect(client);
    return result;
}

int erg_ask_daemon(struct erg_answer **answer, const struct erg_ask_daemon *question,
                   struct erg_error *err)
{
    struct erg_ask_daemon own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_daemon", err) != 0
               ? -1
               : erg_answer_ask_here(answer, ask_daemon, &own, err);
}

static int read_gpus(uint64_t *gpus, const char *list, uint32_t count, struct erg_error *err)
{
    struct erg_error wrong;
    if (!list || erg_gpu_bits(list, count, NULL, gpus, &wrong) == 0)
        return 0;
    return erg_fail(err, ERG_USAGE, "--gpus got \"%s\": %s", list, wrong.message);
}

int erg_grant_gpus(const struct erg_grant *grant, struct erg_error *err)
{
    struct erg_grant own = {0};
    struct erg_daemon_client *client;
    struct erg_wire_hello hello;
    if (erg_sized_take(&own, sizeof own, grant, "erg_grant", err) != 0)
        return -1;
    if (own.job < 1 || own.job > UINT32_MAX || own.uid < 0 || own.uid > UINT32_MAX)
        return erg_fail(err, ERG_USAGE,
                        "a grant: expected the number of a job of Slurm's, from 1 on, and of its "
                        "user, from 0 on");
    if (meet_daemon(&client, own.socket, &hello, err) != 0)
        return -1;
    struct erg_wire_request request = {.type = own.gpus ? ERG_WIRE_GRANT : ERG_WIRE_REVOKE,
                                       .job = (uint32_t)own.job,
                                       .uid = (uint32_t)own.uid};
    const int result = read_gpus(&request.gpus, own.gpus, hello.gpus, err) != 0
                           ? -1
                           : erg_daemon_exchange(client, &request, NULL, err);
    erg_daemon_disconnect(client);
    return result;
}
