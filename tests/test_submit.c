/*
 * Managed jobs on a real Slurm, placed by hand as the controller does: submitted, moved to other
 * numbers of GPUs, done; trainers of others, and ergon train.
 */
#include "mini_cluster.h"
#include "program.h"

#include "cluster/live/job_folder.h"
#include "io/json.h"

static const char config_text[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"hidden_size\": 32,\n"
    " \"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
    " \"num_key_value_heads\": 2, \"head_dim\": 8, \"vocab_size\": 257, \"rms_norm_eps\": 1e-6,\n"
    " \"max_position_embeddings\": 64, \"rope_theta\": 10000, \"tie_word_embeddings\": false}\n";

static const char job_text[] = "model: model\n"
                               "cluster: {nodes: 1, gpus_per_node: 1, gpu: A100-SXM4-40GB}\n"
                               "microbatch_size: 2\n"
                               "microbatches: 4\n"
                               "sequence: 16\n"
                               "train:\n"
                               "  data:\n"
                               "    - file: tokens.bin\n"
                               "  updates: 800\n"
                               "  learning_rate: 0.002\n"
                               "  warmup: 5\n"
                               "  log_every: 1\n";

static const char profiles_text[] =
    "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,iter_time_s\n"
    "bert,2.6B,128,h100,1,2,0.1\n"
    "bert,2.6B,128,a40,1,4,0.2\n";

/* ---- jobs ---- */

struct submitted {
    char id[16], token[ERG_TOKEN_LENGTH + 1];
};

/* "ergon submit" with @ for the folder. */
static struct submitted submit_with(const char *arguments)
{
    struct submitted job = {0};
    struct erg_text line = {0}, command = with_folder(arguments);
    erg_text_printf(&line, "submit %s", command.data);
    struct program_result result = run_program(line.data);
    if (result.exit_code ||
        sscanf(result.out.data, "job %15[0-9], token %16[0-9a-f],", job.id, job.token) != 2)
        fail_msg("ergon %s: %d %s", line.data, result.exit_code, result.out.data);
    erg_text_release(&result.out);
    erg_text_release(&line);
    erg_text_release(&command);
    return job;
}

static struct submitted submit_trainer(const char *options)
{
    struct erg_text line = {0};
    erg_text_printf(&line, "--like bert-2.6B:128:100 '%s' -- log=@/steps %s",
                    ERGON_TEST_FAKE_TRAINER, options);
    struct submitted job = submit_with(line.data);
    erg_text_release(&line);
    return job;
}

static void place_by_hand(const struct submitted *job, const char *nodes, int count, int gpus)
{
    struct erg_text line = {0};
    erg_text_printf(&line,
                    "scontrol update JobId=%s NumNodes=%d-%d NumTasks=%d NumCPUs=%d "
                    "ReqNodeList=%s TresPerNode=gres:gpu:%d StartTime=now+1 && "
                    "scontrol release %s",
                    job->id, count, count, count, count, nodes, gpus, job->id);
    shell(line.data);
    erg_text_release(&line);
}

static void await_state_of(const struct submitted *job, const char *state)
{
    struct erg_text line = {0};
    erg_text_printf(&line, "squeue -h -t all -j %s -o '%%T %%r'", job->id);
    for (int i = 0;; i++) {
        struct erg_text out = output_of(line.data);
        bool is = strncmp(out.data, state, strlen(state)) == 0;
        if (!is && i == 300)
            fail_msg("job %s is %s, expected %s", job->id, out.data, state);
        erg_text_release(&out);
        if (is)
            break;
        erg_sleep_ns(100000000);
    }
    erg_text_release(&line);
}

/* The newest report once there is one that will do. */
static struct erg_report await_report(const struct submitted *job, long incarnation,
                                      enum erg_job_state state, double iteration)
{
    struct erg_report_reader reader = {0};
    struct erg_error err;
    bool fresh;
    for (int i = 0;; i++) {
        const struct erg_report *last = &reader.last;
        assert_ok(erg_job_folder_reports(&reader, &fresh, in_folder("spool"), job->token, geteuid(),
                                         &err),
                  &err);
        if (last->incarnation == incarnation && last->state == state &&
            (isnan(iteration) || last->iteration >= iteration))
            break;
        if (i == 600)
            fail_msg("job %s: incarnation %ld, state %s, iteration %g", job->id, last->incarnation,
                     erg_job_state_names[last->state], last->iteration);
        erg_sleep_ns(50000000);
    }
    assert_int_equal(reader.ignored, 0);
    return reader.last;
}

static void ask_to_leave(const struct submitted *job)
{
    struct erg_text line = {0};
    erg_text_printf(&line, "timeout 5 scancel --batch --signal=USR1 %s", job->id);
    shell(line.data);
    erg_text_release(&line);
}

static char *read_in(const struct submitted *job, const char *name)
{
    char *text, path[200];
    struct erg_error err;
    snprintf(path, sizeof path, "spool/%s/%s", job->token, name);
    assert_ok(erg_file_read(in_folder(path), 0, &text, NULL, &err), &err);
    return text;
}

/* What "ergon jobs" says of a job. */
static json_t *listed(const struct submitted *job)
{
    struct program_result result = run_program("jobs --all --json");
    assert_int_equal(result.exit_code, 0);
    json_t *root = json_loads(result.out.data, 0, NULL), *found = NULL, *one;
    size_t i;
    json_array_foreach(json_object_get(root, "jobs"), i,
                       one) if (!strcmp(json_string_value(json_object_get(one, "token")),
                                        job->token)) found = json_incref(one);
    assert_non_null(found);
    json_decref(root);
    erg_text_release(&result.out);
    return found;
}

static void check_listed(const struct submitted *job, const char *says, int gpus)
{
    json_t *one = listed(job);
    assert_string_equal(json_string_value(json_object_get(one, "says")), says);
    assert_int_equal(json_integer_value(json_object_get(one, "gpus")), gpus);
    json_decref(one);
}

/* ---- trainers of others ---- */

/* Of each incarnation on which GPUs of which node it was, and that it went on where it had saved.
 */
static void check_steps(const struct submitted *job)
{
    char *text, *rest, *line;
    struct erg_error err;
    double saved = 0, first_of[3] = {0}, last = 0;
    long steps[3] = {0};
    assert_ok(erg_file_read(in_folder("steps"), 0, &text, NULL, &err), &err);
    rest = text;
    while ((line = strtok_r(rest, "\n", &rest)) != NULL) {
        double at_s, iteration;
        char token[32], node[32], gpus[32], what[32];
        long incarnation;
        int rank;
        assert_int_equal(sscanf(line, "%lf %31s %ld %d %31s %31s %31s %lf", &at_s, token,
                                &incarnation, &rank, node, gpus, what, &iteration),
                         8);
        if (strcmp(token, job->token))
            continue;
        assert_in_range(incarnation, 1, 2);
        assert_string_equal(gpus, "0,1");
        assert_string_equal(node, incarnation == 1 ? "h1" : rank == 0 ? "a1" : "a2");
        if (rank != 0 || strcmp(what, "step"))
            saved = rank == 0 && !strcmp(what, "saved") ? floor(iteration) : saved;
        else if (steps[incarnation]++ == 0)
            first_of[incarnation] = iteration;
        else
            assert_true(iteration >= last);
        last = iteration;
        if (incarnation == 2 && rank == 0 && steps[2] == 1)
            assert_true(first_of[2] >= saved && first_of[2] < saved + 10);
    }
    assert_true(steps[1] > 5 && steps[2] > 5 && saved == 100);
    free(text);
}

static void programs_move(void **state)
{
    (void)state;
    struct submitted job = submit_trainer("iteration_s=0.05");
    check_listed(&job, "waits for its place", 0);
    await_state_of(&job, "PENDING JobHeldUser");
    place_by_hand(&job, "h1", 1, 2);
    await_report(&job, 1, ERG_JOB_TRAINING, NAN);
    check_listed(&job, "trains", 2);
    erg_sleep_ns(1000000000);
    ask_to_leave(&job);
    await_state_of(&job, "SPECIAL_EXIT");
    struct erg_report saved = await_report(&job, 1, ERG_JOB_SAVED, NAN);
    assert_true(saved.checkpoint == saved.iteration && saved.iteration >= 10);
    check_listed(&job, "waits for its next place", 0);
    place_by_hand(&job, "a1,a2", 2, 2);
    await_report(&job, 2, ERG_JOB_TRAINING, saved.iteration);
    check_listed(&job, "trains", 4);
    /* One that Slurm has is not submitted twice. */
    struct erg_text line = {0};
    erg_text_printf(&line, "submit --resume %s/spool/%s 2>&1", folder, job.token);
    check_program(line.data, 1, "Slurm still has the job, as number ");
    erg_text_release(&line);
    await_state_of(&job, "COMPLETED");
    await_report(&job, 2, ERG_JOB_DONE, 100);
    check_listed(&job, "done", 0);
    check_steps(&job);
}

/* Failures reach Slurm as they are; the job is submitted anew from its folder. */
static void failures_are_slurms(void **state)
{
    (void)state;
    struct submitted job = submit_trainer("iteration_s=0.002 exit=7 exits=1");
    place_by_hand(&job, "h2", 1, 1);
    await_state_of(&job, "FAILED");
    struct erg_text line = {0};
    erg_text_printf(&line, "scontrol show job %s | grep -o 'ExitCode=[0-9:]*'", job.id);
    struct erg_text out = output_of(line.data);
    assert_string_equal(out.data, "ExitCode=7:0");
    erg_text_release(&out);
    line.count = 0;
    erg_text_printf(&line, "--resume @/spool/%s", job.token);
    struct submitted again = submit_with(line.data);
    assert_string_equal(again.token, job.token);
    assert_string_not_equal(again.id, job.id);
    place_by_hand(&again, "h2", 1, 1);
    await_state_of(&again, "COMPLETED");
    await_report(&again, 2, ERG_JOB_DONE, 100);
    erg_text_release(&line);
}

/* ---- ergon train ---- */

/* The loss of each step of a run; none is there twice or missing. */
static void read_losses(double *losses, long count, const char *text)
{
    long steps = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        assert_non_null(object);
        assert_true(steps < count);
        assert_int_equal(json_integer_value(json_object_get(object, "step")), steps + 1);
        losses[steps++] = json_number_value(json_object_get(object, "loss"));
        json_decref(object);
    }
    assert_int_equal(steps, count);
}

static void ergon_train_moves(void **state)
{
    (void)state;
    enum { STEPS = 800, SAME = 40 };
    static double losses[STEPS], whole[SAME];
    struct submitted job = submit_with("@/job.yaml -- --device host --dtype float32");
    char *profile = read_in(&job, "profile.csv");
    assert_non_null(strstr(profile, ",8,a40,1,1,"));
    assert_non_null(strstr(profile, ",8,a40,2,4,"));
    free(profile);
    place_by_hand(&job, "h1", 1, 2);
    await_report(&job, 1, ERG_JOB_TRAINING, NAN);
    erg_sleep_ns(300000000);
    ask_to_leave(&job);
    await_state_of(&job, "SPECIAL_EXIT");
    struct erg_report saved = await_report(&job, 1, ERG_JOB_SAVED, NAN);
    assert_true(saved.iteration > 0 && saved.iteration < STEPS);
    /* On two nodes, whose names cannot be looked up; a batch of 8 on 4 GPUs. */
    place_by_hand(&job, "a1,a2", 2, 2);
    struct erg_report on = await_report(&job, 2, ERG_JOB_TRAINING, NAN);
    assert_true(on.iteration >= saved.iteration && on.checkpoint == saved.iteration);
    await_state_of(&job, "COMPLETED");
    await_report(&job, 2, ERG_JOB_DONE, STEPS);
    char *log = read_in(&job, "log");
    assert_non_null(strstr(log, "incarnation 1 trains on 2 of 2 GPUs: tensor 1 x context 1 x "
                                "pipeline 1 x data 2, 2 microbatches of 2"));
    assert_non_null(strstr(log, "incarnation 2 trains on 4 of 4 GPUs: tensor 1 x context 1 x "
                                "pipeline 1 x data 4, 1 microbatch of 2"));
    free(log);
    char *metrics = read_in(&job, "run/metrics.jsonl");
    read_losses(losses, STEPS, metrics);
    free(metrics);
    /* The curve goes on where it was: as far as sums in another order let it. */
    struct erg_text line = {0};
    erg_text_printf(&line, "train %s/job.yaml --device host --dtype float32 -q -n %d -o %s/whole",
                    folder, SAME, folder);
    check_program(line.data, 0, "trained 40 steps");
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("whole/metrics.jsonl"), 0, &metrics, NULL, &err), &err);
    read_losses(whole, SAME, metrics);
    for (long i = 0; i < SAME; i++)
        assert_near(losses[i], whole[i], 1e-3);
    const long at = (long)saved.iteration;
    assert_true(losses[0] > 5);
    assert_true(at < SAME || losses[at] < losses[0] / 2);
    assert_true(losses[STEPS - 1] < 0.2);
    free(metrics);
    erg_text_release(&line);
}

/* ---- a plan of its own ---- */

static void await_log(const struct submitted *job, const char *text)
{
    for (int i = 0;; i++) {
        char *log = read_in(job, "log");
        const bool found = strstr(log, text) != NULL;
        if (!found && i == 300)
            fail_msg("the log lacks \"%s\":\n%s", text, log);
        free(log);
        if (found)
            return;
        erg_sleep_ns(100000000);
    }
}

/* Until the pipeline's iteration was planned to take so long. */
static void await_planned_s(const struct submitted *job, double planned_s)
{
    char path[80];
    snprintf(path, sizeof path, "spool/%s/run/metrics.jsonl", job->token);
    for (int i = 0; i < 300; i++, erg_sleep_ns(100000000)) {
        if (access(in_folder(path), F_OK) != 0)
            continue;
        char *metrics = read_in(job, "run/metrics.jsonl"), *end = strrchr(metrics, '\n');
        char *line = end;
        while (line && line > metrics && line[-1] != '\n')
            line--;
        json_t *object = line ? json_loadb(line, (size_t)(end - line), 0, NULL) : NULL;
        const json_t *ms = json_object_get(object, "planned_ms");
        const bool is = fabs(1e-3 * json_number_value(ms) / planned_s - 1) < 1e-7;
        json_decref(object);
        free(metrics);
        if (is)
            return;
    }
    fail_msg("no iteration is planned to take %.9g s", planned_s);
}

/* On the GPUs of its plan a job follows its scheduler by points, on others it runs without. */
static void jobs_follow_points(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_text line = {0};
    write_text("planned.yaml",
               "model: model\n"
               "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\n"
               "tensor: 2\nmicrobatch_size: 2\nmicrobatches: 4\nsequence: 16\n"
               "train: {data: [{file: tokens.bin}], updates: 1000000, learning_rate: 0.001, "
               "log_every: 1}\n");
    erg_text_printf(&line, "optimize %s/planned.yaml -o %s/opt", folder, folder);
    check_program(line.data, 0, "plan.json");
    json_t *document = json_load_file(in_folder("opt/plan.json"), 0, NULL);
    const json_t *points = json_object_get(
        json_object_get(json_object_get(document, "methods"), "sequential+clocks"), "points");
    const size_t last = json_array_size(points);
    assert_true(last > 1);
    struct submitted job =
        submit_with("@/planned.yaml -- --device host --dtype float32 --plan @/opt/plan.json "
                    "--method sequential+clocks --point 1");
    place_by_hand(&job, "h1", 1, 2);
    await_report(&job, 1, ERG_JOB_TRAINING, NAN);
    await_log(&job, "incarnation 1 runs by the job's plan");
    const double first_s = json_number_value(json_object_get(json_array_get(points, 0), "time_s"));
    const double last_s =
        json_number_value(json_object_get(json_array_get(points, last - 1), "time_s"));
    const struct erg_live_plan plan = {.number = 1,
                                       .type = "h100",
                                       .nodes = 1,
                                       .gpus_per_node = 2,
                                       .slowdown = last_s / first_s,
                                       .power_w = NAN,
                                       .iteration_s = NAN};
    json_decref(document);
    assert_true(last_s > 1.001 * first_s);
    await_planned_s(&job, first_s);
    assert_ok(erg_job_folder_plan(in_folder("spool"), job.token, geteuid(), &plan, &err), &err);
    await_planned_s(&job, last_s);
    ask_to_leave(&job);
    await_state_of(&job, "SPECIAL_EXIT");
    struct erg_report saved = await_report(&job, 1, ERG_JOB_SAVED, NAN);
    place_by_hand(&job, "h1", 1, 1);
    await_report(&job, 2, ERG_JOB_TRAINING, saved.iteration);
    await_log(&job, "incarnation 2 cannot run by the job's plan and runs one operation after the "
                    "other: ");
    line.count = 0;
    erg_text_printf(&line, "scancel %s", job.id);
    shell(line.data);
    await_state_of(&job, "CANCELLED");
    erg_text_release(&line);
}

/* ---- measured before ---- */

/* What "ergon submit" warns of. */
static struct erg_text warnings_of(struct submitted *job, const char *arguments)
{
    struct erg_text command = {0};
    erg_text_printf(&command, "%s 2>@/said", arguments);
    *job = submit_with(command.data);
    struct erg_text said = output_of("cat @/said");
    erg_text_release(&command);
    return said;
}

/* Seconds of the rows of a type in a job's profile. */
static size_t times_of(double times_s[64], const struct submitted *job, const char *type)
{
    struct erg_text word = {0};
    char *profile = read_in(job, "profile.csv");
    size_t count = 0;
    erg_text_printf(&word, ",8,%s,", type);
    for (char *line = strtok(profile, "\n"); line; line = strtok(NULL, "\n")) {
        const char *at = strstr(line, word.data);
        if (!at)
            continue;
        assert_true(count < 64);
        assert_int_equal(sscanf(at + word.count, "%*d,%*d,%lf", &times_s[count++]), 1);
    }
    erg_text_release(&word);
    free(profile);
    return count;
}

/* The shortest and the longest step that shows the speed of a measured run. */
static void measured_steps(double bounds_s[2], const struct submitted *job, const char *type)
{
    char name[64];
    snprintf(name, sizeof name, "measured.%s/metrics.jsonl", type);
    char *metrics = read_in(job, name);
    bounds_s[0] = INFINITY;
    bounds_s[1] = 0;
    for (char *line = strtok(metrics, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        const json_t *ms = json_object_get(json_object_get(object, "undisturbed"), "ms");
        if (json_is_number(ms)) {
            bounds_s[0] = fmin(bounds_s[0], 1e-3 * json_number_value(ms));
            bounds_s[1] = fmax(bounds_s[1], 1e-3 * json_number_value(ms));
        }
        json_decref(object);
    }
    free(metrics);
}

/* A run on one GPU of each type says how fast the job is; where there is none, the planner does. */
static void speeds_are_measured(void **state)
{
    (void)state;
    double planned_s[64], measured_s[64], bounds_s[2];
    shell("sed 's/name: h100/name: h100-sxm/' @/live.yaml >@/known.yaml");
    struct submitted plain = submit_with("--live @/known.yaml @/job.yaml -- --device host"), job;
    struct erg_text said =
        warnings_of(&job, "--live @/known.yaml @/job.yaml --measure 2 -- --device host "
                          "--dtype float32");
    assert_string_equal(said.data, "");
    erg_text_release(&said);
    for (int i = 0; i < 2; i++) {
        const char *type = i ? "h100-sxm" : "a40";
        const size_t count = times_of(planned_s, &plain, type);
        assert_int_equal(times_of(measured_s, &job, type), count);
        assert_true(count >= 4);
        measured_steps(bounds_s, &job, type);
        print_message("%s: %g s measured, %g s planned\n", type, measured_s[0], planned_s[0]);
        assert_true(measured_s[0] >= 0.999 * bounds_s[0] && measured_s[0] <= 1.001 * bounds_s[1]);
        for (size_t k = 0; k < count; k++)
            if (planned_s[k] > 0)
                assert_close(measured_s[k] / planned_s[k], measured_s[0] / planned_s[0], 1e-4);
    }
    shell("for i in $(seq 100); do test -z \"$(squeue -h -t R,PD,CG -o %j | grep measured)\" && "
          "exit 0; sleep 0.1; done; exit 1");

    /* A run that fails, and one that gets no GPU. */
    said = warnings_of(&job, "@/job.yaml --type a40 --measure 2 -- --device host --init @/none");
    if (!strstr(said.data, "measuring on a40: job ") ||
        !strstr(said.data, "ended as FAILED before 5 steps were measured, see ") ||
        !strstr(said.data, "measured.a40.log; the planner's estimate stays"))
        fail_msg("%s", said.data);
    erg_text_release(&said);
    struct erg_text taken = output_of("for n in a1 a2; do sbatch --parsable -w $n --gres=gpu:4 -o "
                                      "/dev/null --wrap='sleep 100'; done | tr '\\n' ' '");
    shell("for i in $(seq 200); do test $(squeue -h -t R -w a1,a2 -o %A | wc -l) = 2 && exit 0; "
          "sleep 0.1; done; exit 1");
    said = warnings_of(&job, "@/job.yaml --type a40 --measure 0.03 -- --device host");
    if (!strstr(said.data, "got no GPU within 1.8 s; the planner's estimate stays"))
        fail_msg("%s", said.data);
    erg_text_release(&said);
    const size_t count = times_of(planned_s, &plain, "a40");
    assert_int_equal(times_of(measured_s, &job, "a40"), count);
    assert_memory_equal(planned_s, measured_s, count * sizeof *planned_s);
    struct erg_text line = {0};
    erg_text_printf(&line, "scancel %s; ! squeue -h -o %%j | grep measured", taken.data);
    shell(line.data);
    erg_text_release(&line);
    erg_text_release(&taken);
}

/* The rows of a plan that was emulated change as the planner's do: by a run without a plan over
 * what the planner expects of it. Those of a plan that was measured stay. */
static void plans_are_corrected(void **state)
{
    (void)state;
    static double planner_s[64], planned_s[64], measured_s[64];
    double bounds_s[2];
    static const char with[] =
        "-- --device host --dtype float32 --plan @/alone/plan.json --point 1 "
        "-m sequential+clocks";
    struct erg_text line = {0};
    erg_text_printf(&line, "optimize %s/job.yaml -o %s/alone", folder, folder);
    check_program(line.data, 0, "plan.json");
    struct submitted plain = submit_with("@/job.yaml --type a40 -- --device host"), job;
    const size_t planner = times_of(planner_s, &plain, "a40"); /* the first is of one GPU */
    for (int measured = 0; measured < 2; measured++) {
        line.count = 0;
        erg_text_printf(&line, "@/job.yaml --type a40 %s", with);
        struct submitted before = submit_with(line.data);
        const size_t count = times_of(planned_s, &before, "a40");
        line.count = 0;
        erg_text_printf(&line, "@/job.yaml --type a40 --measure 2 %s", with);
        struct erg_text said = warnings_of(&job, line.data);
        assert_string_equal(said.data, "");
        erg_text_release(&said);
        assert_int_equal(times_of(measured_s, &job, "a40"), count);
        const double times = measured_s[0] / planned_s[0];
        measured_steps(bounds_s, &job, "a40");
        print_message("%zu rows, %g times as slow as planned\n", count, times);
        assert_true(times * planner_s[0] >= 0.999 * bounds_s[0] &&
                    times * planner_s[0] <= 1.001 * bounds_s[1]);
        size_t plans = 0; /* the last ones */
        while (plans < count && planned_s[count - 1 - plans] > planner_s[1])
            plans++;
        assert_true(plans > 2 && planned_s[count - plans] != planner_s[0]);
        for (size_t k = 0; k < count; k++)
            assert_close(measured_s[k] / planned_s[k], measured && k >= count - plans ? 1 : times,
                         1e-12);
        shell("sed -i 's/\"emulated\": true/\"emulated\": false/' @/alone/plan.json");
    }
    assert_true(planner > 2);
    erg_text_release(&line);
}

/* GPUs of 0.125 GiB have room for half of the layers, which are measured, and planned, alone. */
static void half_of_a_job_is_measured(void **state)
{
    (void)state;
    double planned_s[64], measured_s[64];
    shell("mkdir -p @/data/gpus @/deep && sed 's/^name: .*/name: Tiny/; s/^driver_names.*//; "
          "s/memory_gib: 80 /memory_gib: 0.125 /' " ERGON_TEST_SOURCE_DIR
          "/data/gpus/h100-sxm.yaml >@/data/gpus/tiny.yaml && "
          "sed 's/: 32,/: 64,/; s/: 48,/: 128,/; s/layers\": 2,/layers\": 100,/; s/: 8,/: 16,/' "
          "@/model/config.json >@/deep/config.json && "
          "sed 's/^model: model/model: deep/' @/job.yaml >@/deep.yaml && "
          "sed 's/name: h100/name: tiny/' @/live.yaml >@/small.yaml");
    setenv("ERGON_DATA", in_folder("data"), 1);
    struct submitted plain = submit_with("--live @/small.yaml @/deep.yaml --type tiny --at-most 2"),
                     job;
    struct erg_text said =
        warnings_of(&job, "--live @/small.yaml @/deep.yaml --type tiny --at-most 2 "
                          "--measure 2 -- --device host --dtype float32");
    unsetenv("ERGON_DATA");
    assert_string_equal(said.data, "");
    erg_text_release(&said);
    const size_t count = times_of(planned_s, &plain, "tiny");
    assert_int_equal(times_of(measured_s, &job, "tiny"), count);
    assert_true(planned_s[0] == -1 && measured_s[0] == -1); /* one GPU */
    double slower = NAN;
    for (size_t k = 0; k < count; k++) {
        if (planned_s[k] < 0)
            continue;
        slower = isnan(slower) ? measured_s[k] / planned_s[k] : slower;
        assert_close(measured_s[k] / planned_s[k], slower, 1e-4);
    }
    print_message("%g times as slow as planned\n", slower);
    assert_true(slower > 10); /* this host is no GPU */
    char *config = read_in(&job, "measured.tiny.model/config.json");
    assert_non_null(strstr(config, "\"num_hidden_layers\": 50"));
    free(config);
}

/* ---- sites that do not put jobs back ---- */

/* And a trainer that says nothing: its reports are made for it. */
static void run_job_requeues(void **state)
{
    (void)state;
    shell("sed -i 's/^RequeueExitHold=.*/RequeueExitHold=99/' @/mini/slurm.conf && "
          "scontrol reconfigure");
    struct submitted job = submit_trainer("iteration_s=3600 silent=1");
    place_by_hand(&job, "h1", 1, 1);
    struct erg_report none = await_report(&job, 1, ERG_JOB_LOADING, NAN);
    assert_true(isnan(none.iteration));
    ask_to_leave(&job); /* is passed on when the trainer has had its time */
    await_report(&job, 1, ERG_JOB_SAVED, NAN);
    await_state_of(&job, "PENDING job requeued in held state");
    place_by_hand(&job, "h1", 1, 1);
    await_report(&job, 2, ERG_JOB_LOADING, NAN);
    /* Cancelled by its user it does not come back. */
    struct erg_text line = {0};
    erg_text_printf(&line, "scancel %s", job.id);
    shell(line.data);
    await_state_of(&job, "CANCELLED");
    erg_text_release(&line);
}

static int begin(void **state)
{
    char text[4000] = "";
    if (begin_mini_cluster("") != 0)
        return -1;
    shell("mkdir -m 3733 @/spool && mkdir @/model @/profiles");
    write_text("model/config.json", config_text);
    write_text("profiles/prof_optimal.csv", profiles_text);
    write_text("job.yaml", job_text);
    while (strlen(text) < 3000)
        strcat(text, "the quick brown fox jumps over the lazy dog and on. ");
    write_text("text", text);
    struct erg_text live = with_folder(
        "slurm: {partition: ergon, spool: @/spool}\n"
        "profiles: profiles\n"
        "types:\n"
        "  - {name: a40, nodes: \"a[1-2]\", gpus_per_node: 4, memory_gb: 48, idle_power_w: 30}\n"
        "  - {name: h100, nodes: \"h[1-2]\", gpus_per_node: 4, memory_gb: 80, idle_power_w: 60}\n");
    write_text("live.yaml", live.data);
    erg_text_release(&live);
    setenv("ERGON_LIVE", in_folder("live.yaml"), 1);
    setenv("ERGON_POWERCAP", "/nonexistent", 1);
    struct erg_text line = with_folder("tokenize bytes @/text -o @/tokens");
    check_program(line.data, 0, "1 document");
    erg_text_release(&line);
    (void)state;
    return 0;
}

int main(void)
{
    skip_without_slurm();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_move),       cmocka_unit_test(failures_are_slurms),
        cmocka_unit_test(ergon_train_moves),   cmocka_unit_test(jobs_follow_points),
        cmocka_unit_test(speeds_are_measured), cmocka_unit_test(half_of_a_job_is_measured),
        cmocka_unit_test(plans_are_corrected), cmocka_unit_test(run_job_requeues),
    };
    return cmocka_run_group_tests(tests, begin, end_mini_cluster);
}
