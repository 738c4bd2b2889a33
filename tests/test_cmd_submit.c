/*
 * What submitting, listing and running managed jobs say without a Slurm: wrong command lines and
 * files, the layout on other numbers of GPUs, and a fake srun and sbatch.
 */
#include "train_job.h"

#include "api/live_layout.h"
#include "api/submit_job.h"
#include "cluster/live/job_list.h"
#include "job/job.h"
#include "layout/exchange/profile_rows.h"

#include <dirent.h>
#include <time.h>

/* ---- command lines ---- */

static void wrong_submissions_are_named(void **state)
{
    (void)state;
    check(2, "expected the option --live LIVE.yaml or the environment variable ERGON_LIVE",
          "submit @/job.yaml");
    check(2, "needs JOB.yaml, or --like and a program", "submit --live @/live.yaml");
    check(2, "--per-node was given without --like",
          "submit --live @/live.yaml --per-node @/job.yaml");
    check(2, "--measure goes with JOB.yaml",
          "submit --live @/live.yaml --like bert-2.6B:128:5 --measure 1 /bin/true");
    check(2, "expected no option but --live", "submit --live @/live.yaml --resume @/x -n 2");
    check(2, "--deadline got \"tomorrow\"",
          "submit --live @/live.yaml --deadline tomorrow @/job.yaml");
    check(2, "--like got \"bert:128:5\", expected MODEL:BATCH:ITERATIONS",
          "submit --live @/live.yaml --like bert:128:5 /bin/true");
    check(2, "--like got \"bert-2.6B:128:0\"",
          "submit --live @/live.yaml --like bert-2.6B:128:0 /bin/true");
    check(3, "have no GPUs of a40, h100 that run bert-2.6B with a batch of 64",
          "submit --live @/live.yaml --like bert-2.6B:64:5 /bin/true");
    check(3, "have no GPUs of a40 that run bert-2.6B with a batch of 128",
          "submit --live @/live.yaml --like bert-2.6B:128:5 --type a40 /bin/true");
    check(2, "no GPUs of the type 'b200', expected a40, h100",
          "submit --live @/live.yaml --like bert-2.6B:128:5 --type b200 /bin/true");
    check(1, "'", "submit --live @/live.yaml --like bert-2.6B:128:5 @/job.yaml");
    check(1, "reading '", "submit --live @/live.yaml --like bert-2.6B:128:5 @/none");
    check(3, "20 GPUs were asked for, and the cluster has 16",
          "submit --live @/live.yaml --like bert-2.6B:128:5 -n 20 /bin/true");
    check(2, "--gpus 4 are more than --at-most 2",
          "submit --live @/live.yaml --like bert-2.6B:128:5 -n 4 -m 2 /bin/true");
    check(2, "--fresh is not for a managed job", "submit --live @/live.yaml @/job.yaml -- --fresh");
    check(3, "the speed of ", "submit --live @/live.yaml @/job.yaml --type h100");
    check(1, "is not a job's folder in the spool", "submit --live @/live.yaml --resume @/model");
    check(2, "is not an absolute path", "run-job folder");
    check(1, "is not a job's token", "run-job @/folder");
    check(1, "no controller has written its status yet", /* the example is a live file */
          "schedule " ERGON_TEST_SOURCE_DIR "/examples/live/live.yaml --status");
    shell("test -z \"$(ls @/spool)\""); /* nothing stays behind */
}

static void models_of_folders_have_their_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"meta-llama/Llama-3.2-1B", "Llama-3.2-1B"},
                                           {"/data/tiny-llama/config.json", "tiny-llama"},
                                           {"./tiny-llama/config.json", "tiny-llama"},
                                           {"./config.json", "."},
                                           {"config.json", "config.json"},
                                           {"tiny", "tiny"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char family[80];
        const struct erg_model model = {.name = (char *)(uintptr_t)names[i][0]};
        erg_profile_rows_family(&model, family);
        assert_string_equal(family, names[i][1]);
    }
}

/* One GPU of a40 takes 2.5 times as long as planned, and draws 0.8 times as much. */
static void measured_rows_change_all_of_a_type(void **state)
{
    (void)state;
    static const char header[] = "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,"
                                 "iter_time_s,gpu_power_w\n";
    static const char others[] = "m,1B,8,h100,1,1,-1,\n\"m,x\",1B,8,h100,1,2,0.5,600.0000001\n";
    struct erg_text rows = {0}, expected = {0};
    struct erg_error err;
    double time_s, power_w;
    erg_text_printf(&rows, "%s%s%s", header,
                    "m,1B,8,\"a,40 \"\"x\"\"\",1,1,2.2,250\nm,1B,8,\"a,40 \"\"x\"\"\",1,1,2,300\n"
                    "m,1B,8,\"a,40 \"\"x\"\"\",1,2,1.2,\nm,1B,8,\"a,40 \"\"x\"\"\",2,4,-1,\n",
                    others);
    assert_ok(erg_profile_rows_one_gpu(&time_s, &power_w, &rows, "a,40 \"x\"", &err), &err);
    assert_true(time_s == 2 && power_w == 300);
    assert_ok(erg_profile_rows_one_gpu(&time_s, &power_w, &rows, "h100", &err), &err);
    assert_true(isinf(time_s) && isnan(power_w));
    assert_ok(erg_profile_rows_one_gpu(&time_s, &power_w, &rows, "40", &err), &err);
    assert_true(isnan(time_s) && isnan(power_w));
    assert_ok(erg_profile_rows_scale(&rows, "a,40 \"x\"", 2.5, 0.8, &err), &err);
    erg_text_printf(&expected, "%s%s%s", header,
                    "m,1B,8,\"a,40 \"\"x\"\"\",1,1,5.5,200\nm,1B,8,\"a,40 \"\"x\"\"\",1,1,5,240\n"
                    "m,1B,8,\"a,40 \"\"x\"\"\",1,2,3,\nm,1B,8,\"a,40 \"\"x\"\"\",2,4,-1,\n",
                    others);
    assert_string_equal(rows.data, expected.data);
    assert_ok(erg_profile_rows_scale(&rows, "b200", 2, 2, &err), &err);
    assert_string_equal(rows.data, expected.data);
    erg_text_add(&rows, "m,1B,8,h100,1,1,soon,\n");
    assert_fails(erg_profile_rows_scale(&rows, "h100", 2, 2, &err), &err, "profile.csv:8: ");
    erg_text_release(&rows);
    erg_text_release(&expected);
}

static void deadlines_are_read(void **state)
{
    (void)state;
    double unix_s;
    struct erg_error err;
    const double now = (double)time(NULL);
    assert_ok(erg_submit_read_deadline(&unix_s, "10:00:05", &err), &err);
    assert_near(unix_s, now + 36005, 2);
    setenv("TZ", "UTC", 1);
    tzset();
    assert_ok(erg_submit_read_deadline(&unix_s, "2026-01-31T12:00", &err), &err);
    assert_true(unix_s == 1769860800);
    assert_ok(erg_submit_read_deadline(&unix_s, "2026-01-31T12:00:07", &err), &err);
    assert_true(unix_s == 1769860807);
    assert_fails(erg_submit_read_deadline(&unix_s, "10:70:00", &err), &err, "--deadline got");
    assert_fails(erg_submit_read_deadline(&unix_s, "", &err), &err, "--deadline got");
}

/* ---- with programs in the place of Slurm's ---- */

/* A program with @/ for the folder; "$@" stays. */
static void write_program(const char *name, const char *text)
{
    struct erg_text whole = {0}, line = {0};
    for (const char *at = text; *at; at++)
        if (at[0] == '@' && at[1] == '/')
            erg_text_add(&whole, folder);
        else
            erg_text_add_bytes(&whole, at, 1);
    write_text(name, whole.data);
    erg_text_printf(&line, "chmod +x @/%s", name);
    shell(line.data);
    erg_text_release(&whole);
    erg_text_release(&line);
}

/* The only folder of the spool. */
static const char *token_in_spool(void)
{
    static char token[32];
    DIR *listing = opendir(in_folder("spool"));
    assert_non_null(listing);
    token[0] = '\0';
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (entry->d_name[0] != '.')
            snprintf(token, sizeof token, "%.16s", entry->d_name);
    closedir(listing);
    return token;
}

/* Of GPUs that the catalogue does not know the live file's profiles say how fast a job is. */
static void profiles_know_types_of_a_site(void **state)
{
    (void)state;
    write_program("bin/sbatch", "#!/bin/sh\necho 18\n");
    shell("sed 's/h100/fake/; s/a40/other/; s/profiles$/site/' @/live.yaml >@/site.yaml; mkdir "
          "@/site");
    write_text("site/prof_optimal.csv",
               "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,iter_time_s\n"
               "model,0.032M,8,fake,1,1,0.1\n");
    check(3, "no GPU 'fake' (data/gpus); the live file's profiles lack it, too",
          "submit --live @/site.yaml @/job.yaml");
    write_text("site/prof_optimal.csv",
               "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,iter_time_s\n"
               "model,0.032M,4,fake,1,1,0.1\n");
    check(0, "\"types\": \"fake\"", "submit --live @/site.yaml --json @/job.yaml");
    shell("rm -r @/spool/*");
}

static void sbatch_gets_all(void **state)
{
    (void)state;
    write_program("bin/sbatch", "#!/bin/sh\nprintf '%s\\n' \"$@\" >@/asked\necho '17;cluster'\n");
    write_program("train.sh", "#!/bin/sh\nexit 7\n");
    check(
        0, "\"job\": 17",
        "submit --live @/live.yaml --json --like bert-2.6B:128:5000 -n 2 -m 8 --deadline 01:00:00 "
        "--weight 2.5 --per-node @/train.sh -- --x 'a b'");
    struct erg_arena arena = {0};
    struct erg_live_request request;
    struct erg_error err;
    const char *token = token_in_spool();
    struct erg_text expected = {0};
    char *asked;
    assert_ok(erg_job_folder_request(&request, in_folder("spool"), token, geteuid(), &arena, &err),
              &err);
    assert_string_equal(request.family, "bert");
    assert_string_equal(request.size, "2.6B");
    assert_true(request.batch == 128 && request.iterations == 5000 && request.weight == 2.5);
    assert_true(request.gpus == 2 && request.gpus_most == 8 && request.per_node);
    assert_near(request.deadline_unix_s, request.submitted_unix_s + 3600, 2);
    assert_false(request.has_profile || request.trains);
    assert_int_equal(request.command_count, 3);
    erg_text_printf(&expected, "%s/spool/%s/script", folder, token);
    assert_string_equal(request.command[0], expected.data);
    assert_string_equal(request.command[1], "--x");
    assert_string_equal(request.command[2], "a b");
    assert_int_equal(access(expected.data, X_OK), 0);
    assert_ok(erg_file_read(in_folder("asked"), 0, &asked, NULL, &err), &err);
    static const char *const parts[] = {"--hold\n",
                                        "--requeue\n",
                                        "--open-mode=append\n",
                                        "--gres=gpu:1\n",
                                        "--signal=B:USR1@120\n",
                                        "--partition=ergon\n",
                                        "--job-name=train.sh\n",
                                        "--wrap=exec '"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_non_null(strstr(asked, parts[i]));
    expected.count = 0;
    erg_text_printf(&expected, " run-job '%s/spool/%s'\n", folder, token);
    assert_non_null(strstr(asked, expected.data));
    expected.count = 0;
    erg_text_printf(&expected, "--comment=ergon:1:%s\n", token);
    assert_non_null(strstr(asked, expected.data));
    free(asked);
    erg_text_release(&expected);
    erg_arena_release(&arena);
    shell("rm -r @/spool/*");

    write_program("bin/sbatch", "#!/bin/sh\necho 'sbatch: error: no such partition' >&2\nexit 1\n");
    check(1, "Slurm rejected the job: sbatch: error: no such partition",
          "submit --live @/live.yaml --like bert-2.6B:128:5000 @/train.sh");
    shell("test -z \"$(ls @/spool)\"");
}

/* One that leaves its layout open, planned on the GPUs that the catalogue knows. */
static void jobs_bring_their_profile(void **state)
{
    (void)state;
    struct erg_arena arena = {0};
    struct erg_live_request request;
    struct erg_error err;
    char *profile;
    size_t length;
    write_program("bin/sbatch", "#!/bin/sh\necho 19\n");
    write_program("bin/srun", "#!/bin/sh\nprintf '%s ' \"$@\" >@/asked\n");
    write_text("open.yaml", "model: model\n"
                            "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\n"
                            "sequence: 16\n"
                            "train: {batch: 16, data: [{file: tokens.bin}], updates: 60, "
                            "learning_rate: 0.01}\n");
    check(0, "waits for its place on a40", "submit --live @/live.yaml @/open.yaml -- --steps 9");
    const char *token = token_in_spool();
    assert_ok(erg_job_folder_request(&request, in_folder("spool"), token, geteuid(), &arena, &err),
              &err);
    assert_true(request.trains && request.has_profile && request.gpus == 2);
    assert_true(request.gpus_most == 16 && request.batch == 16 && request.iterations == 60);
    assert_int_equal(request.command_count, 2);
    assert_ok(erg_job_folder_profile(&profile, &length, in_folder("spool"), token, geteuid(), &err),
              &err);
    /* One header, and one row or more of each number of GPUs. */
    assert_null(strstr(profile + 1, "model,param_num"));
    static const char *const shapes[] = {",16,a40,1,1,", ",16,a40,1,2,", ",16,a40,1,4,",
                                         ",16,a40,2,4,"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_non_null(strstr(profile, shapes[i]));
    assert_null(strstr(profile, "h100"));
    free(profile);
    /* The planner chooses where the plan names the type. */
    const struct erg_live_plan plan = {.type = "a40",
                                       .nodes = 1,
                                       .gpus_per_node = 4,
                                       .slowdown = 1,
                                       .power_w = NAN,
                                       .iteration_s = NAN};
    assert_ok(erg_job_folder_plan(in_folder("spool"), token, geteuid(), &plan, &err), &err);
    setenv("SLURM_JOB_NUM_NODES", "1", 1);
    setenv("SLURM_GPUS_ON_NODE", "4", 1);
    struct erg_text line = {0};
    erg_text_printf(&line, "run-job @/spool/%s", token);
    check(0, "incarnation 1 trains on 4 of 4 GPUs: ", line.data);
    check(0, "(the planner's)", line.data);
    line.count = 0;
    erg_text_printf(&line,
                    "grep -q -- '--ntasks=4 .* train @/spool/%s/job.2.yaml --output "
                    "@/spool/%s/run --steps 9 ' @/asked",
                    token, token);
    shell(line.data);
    erg_text_release(&line);
    unsetenv("SLURM_JOB_NUM_NODES");
    unsetenv("SLURM_GPUS_ON_NODE");
    erg_arena_release(&arena);
    shell("rm -r @/spool/*");
}

/* An incarnation on GPUs of a type; the words of its srun are in `asked`. */
static void check_incarnation(const char *token, const char *type, int gpus, const char *says)
{
    const struct erg_live_plan plan = {.type = type,
                                       .nodes = 1,
                                       .gpus_per_node = gpus,
                                       .slowdown = 1,
                                       .power_w = NAN,
                                       .iteration_s = NAN};
    struct erg_error err;
    char text[16];
    struct erg_text line = {0};
    assert_ok(erg_job_folder_plan(in_folder("spool"), token, geteuid(), &plan, &err), &err);
    snprintf(text, sizeof text, "%d", gpus);
    setenv("SLURM_JOB_NUM_NODES", "1", 1);
    setenv("SLURM_GPUS_ON_NODE", text, 1);
    erg_text_printf(&line, "run-job @/spool/%s", token);
    check(0, says, line.data);
    unsetenv("SLURM_JOB_NUM_NODES");
    unsetenv("SLURM_GPUS_ON_NODE");
    erg_text_release(&line);
}

/* A job with a plan of its own runs by it where its layout and GPUs are the plan's. */
static void jobs_run_by_their_plan(void **state)
{
    (void)state;
    struct erg_text line = {0};
    write_program("bin/sbatch", "#!/bin/sh\necho 19\n");
    write_program("bin/srun", "#!/bin/sh\nprintf '%s ' \"$@\" >@/asked\n");
    write_text("planned.yaml", "model: model\n"
                               "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\n"
                               "tensor: 2\nmicrobatch_size: 4\nmicrobatches: 4\nsequence: 32\n"
                               "train: {data: [{file: tokens.bin}], updates: 8, "
                               "learning_rate: 0.01}\n");
    check(0, "plan.json", "optimize @/planned.yaml -o @/opt");
    shell("sed 's/sequence: 32/sequence: 16/' @/planned.yaml >@/short.yaml; "
          "sed 's/microbatches: 4/microbatches: 6/' @/planned.yaml >@/six.yaml");
    check(2, "--point=2 needs --plan", "submit --live @/live.yaml @/planned.yaml -- --point=2");
    check(1, "none.json", "submit --live @/live.yaml @/planned.yaml -- --plan @/none.json");
    check(2, "plan.json: it is a plan for sequences of 32 tokens, expected 16",
          "submit --live @/live.yaml @/short.yaml -- --plan @/opt/plan.json");
    check(2,
          "plan.json: it is a plan for 4 microbatches of 4, which do not divide the job's batch "
          "of 24",
          "submit --live @/live.yaml @/six.yaml -- -p@/opt/plan.json");
    check(2, "plan.json: it is a plan for the model ",
          "submit --live @/small.yaml @/deep.yaml -- --plan=@/opt/plan.json");
    static const char *const points[][2] = {
        {"--method=none", "method"},
        {"-m nanobatching+clocks --point 900", "nanobatching+clocks has the points 1 to "},
        {"--point 0", "--point got \"0\", expected a value between 1 and 1000000000"},
        {"--point=1.5", "--point got \"1.5\", expected a whole number"},
        {"--deadline soon", "--deadline got \"soon\", expected a number"},
        {"-D 1e-10", "--deadline got \"1e-10\", expected at least 1e-09"},
        {"-D 1e-9", "plan.json: choosing a point of "},
        {"-E-3", "--energy-budget got \"-3\", expected at least 1e-09"},
        {"-D 1 --point=1", "--point, --deadline and --energy-budget exclude each other"},
        {"--lock-clocks --method", "--method needs a value"}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        line.count = 0;
        erg_text_printf(&line,
                        "submit --live @/live.yaml @/planned.yaml -- --plan @/opt/plan.json %s",
                        points[i][0]);
        check(strstr(points[i][0], "1e-9") ? 3 : 2, points[i][1], line.data);
    }
    line.count = 0;
    shell("test -z \"$(ls @/spool)\"");

    check(0, "job 19",
          "submit --live @/live.yaml @/planned.yaml -- --point=2 --plan @/opt/plan.json --steps 9 "
          "-m sequential+clocks --lock-clocks");
    shell("mv @/opt @/gone");
    const char *token = token_in_spool();
    erg_text_printf(&line,
                    "grep -q -- ' --output @/spool/%s/run --steps 9 --point=2 -m sequential+clocks "
                    "--lock-clocks --plan @/spool/%s/job.plan.json $' @/asked",
                    token, token);
    check_incarnation(token, "A100-SXM4-40GB", 2, "incarnation 1 runs by the job's plan");
    shell(line.data);
    line.count = 0;
    erg_text_printf(&line, "grep -q -- ' --output @/spool/%s/run --steps 9 $' @/asked", token);
    check_incarnation(token, "A100-SXM4-40GB", 1,
                      "incarnation 2 cannot run by the job's plan and runs one operation after the "
                      "other: ");
    shell(line.data);
    check_incarnation(token, "a40", 2, "the plan is one for A100-SXM4-40GB, expected a40");
    shell(line.data);
    check_incarnation(token, "a100-sxm4-40gb", 2, "microbatches of 4 (of the job's plan)");
    shell("grep -q -- --plan @/asked && rm -r @/spool/*");

    /* Only the device makes a job one of the host. */
    check(0, "job 19",
          "submit --live @/live.yaml @/planned.yaml -- --plan @/gone/plan.json --export @/host");
    check_incarnation(token_in_spool(), "a40", 2,
                      "the plan is one for A100-SXM4-40GB, expected a40");
    shell("rm -r @/spool/*");
    erg_text_release(&line);
}

/* A Slurm that has the job of the last sbatch after `looks` commands squeue, and ends it. */
static void fake_slurm(const char *sbatch, const char *state, int looks)
{
    struct erg_text text = {0};
    shell("rm -f @/told @/looks @/comment @/ended");
    erg_text_printf(&text,
                    "#!/bin/sh\necho sbatch \"$@\" >>@/told\n"
                    "for w; do case $w in --comment=*) echo \"${w#*=}\" >@/comment;; esac; done\n"
                    "case $* in *ergon:1:*) echo 40; exit;; esac\n%s\n",
                    sbatch);
    write_program("bin/sbatch", text.data);
    text.count = 0;
    erg_text_printf(&text,
                    "#!/bin/sh\necho >>@/looks\n[ -e @/ended ] || [ $(wc -l <@/looks) -le %d ] || "
                    "echo \"21|%s||$(cat @/comment)\"\n",
                    looks, state);
    write_program("bin/squeue", text.data);
    write_program("bin/scancel", "#!/bin/sh\necho scancel \"$@\" >>@/told\n: >@/ended\n");
    erg_text_release(&text);
}

/* The second type, whose GPUs have no room for the job, would be planned for long. */
static void interrupted_measuring_leaves_no_job(void **state)
{
    (void)state;
    fake_slurm("kill -INT $PPID; echo 21", "PENDING", 0);
    check(130, "interrupted",
          "submit --live @/small.yaml @/deep.yaml --at-most 2 --measure 2 -- --device host");
    shell("test \"$(cut -c 1-10 @/told | tr '\\n' ' ')\" = 'sbatch --p scancel 21 ' && "
          "test -z \"$(ls @/spool)\"");
}

/* The answer of sbatch is lost: its job is in Slurm at once, later, or never. */
static void lost_submissions_are_found(void **state)
{
    (void)state;
    static const char lost[] = "echo 'sbatch: error: Batch job submission failed: Socket timed out "
                               "on send/recv operation' >&2; exit 1";
    static const char line[] =
        "submit --live @/live.yaml @/job.yaml --measure 0.01 -- --device host";
    static const char warning[] =
        "measuring on a40: Slurm does not answer: sbatch: error: Batch job submission failed: "
        "Socket timed out on send/recv operation; the planner's estimate stays";
    fake_slurm(lost, "PENDING", 0);
    check(0, "job 21 got no GPU within 0.6 s; the planner's estimate stays", line);
    shell("grep -q '^scancel 21$' @/told && rm -r @/spool/*");
    fake_slurm(lost, "RUNNING", 1);
    check(0, warning, line);
    shell("grep -q '^scancel --full --signal=KILL 21$' @/told && rm -r @/spool/*");
    fake_slurm("echo 21", "PENDING", 0); /* it ends in the moment in which it is cancelled */
    write_program("bin/scancel",
                  "#!/bin/sh\n: >@/ended\necho 'scancel: error: Kill job error on job "
                  "id 21: Job/step already completing or completed' >&2; exit 1\n");
    struct erg_text quiet = with_folder(line);
    erg_text_add(&quiet, " 2>&1 | grep -c 'may still be in Slurm'");
    struct program_result result = run_program(quiet.data);
    assert_string_equal(result.out.data, "0\n");
    shell("rm -r @/spool/*");
    erg_text_release(&quiet);
    erg_text_release(&result.out);
    fake_slurm("echo 21", "CONFIGURING", 0);
    check(0, "job 21 measured fewer than 5 steps within 0.6 s", line);
    shell("grep -q '^scancel 21$' @/told && rm -r @/spool/*");
    fake_slurm(lost, "RUNNING", 1000);
    check(0, warning, line); /* should it begin after all, it finds no file */
    shell(
        "! grep -q '^scancel' @/told && ls @/spool/*/job.yaml && ! ls @/spool/*/measured.a40.yaml "
        "2>/dev/null && rm -r @/spool/*");

    /* The job itself. */
    fake_slurm("", "PENDING", 0);
    struct erg_text text = {0};
    erg_text_printf(&text,
                    "#!/bin/sh\nfor w; do case $w in --comment=*) echo \"${w#*=}\" >@/comment;; "
                    "esac; done\n%s\n",
                    lost);
    write_program("bin/sbatch", text.data);
    erg_text_release(&text);
    check(0, "job 21", "submit --live @/live.yaml @/job.yaml");
    shell("rm -r @/spool/*");
    write_program("bin/squeue", "#!/bin/sh\n");
    check(1, "the job may have been submitted, with the folder '",
          "submit --live @/live.yaml @/job.yaml");
    shell("ls @/spool/*/request.json && rm -r @/spool/*");
    write_program("bin/sbatch",
                  "#!/bin/sh\necho 'sbatch: error: Batch job submission failed: Unable "
                  "to contact slurm controller (connect failure)' >&2; exit 1\n");
    check(1, "Slurm rejected the job: sbatch: error: Batch job submission failed: Unable to",
          "submit --live @/live.yaml @/job.yaml");
    shell("test -z \"$(ls @/spool)\"");
}

/* A job without a trainer's reports: a loading and a done, or the trainer's own status. */
static void run_job_ends_as_the_trainer(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_text line = {0};
    write_program("bin/sbatch", "#!/bin/sh\necho 18\n");
    write_program("bin/srun", "#!/bin/sh\nprintf '%s ' \"$@\" >@/asked\n"
                              "while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"\n");
    write_program("bin/scontrol", "#!/bin/sh\necho \"scontrol $*\" >>@/told\n"
                                  "echo 'RequeueExitHold         = 7,80-84'\n");
    write_program("bin/squeue", "#!/bin/sh\necho RUNNING\n");
    write_program("train.sh", "#!/bin/sh\necho $ERGON_INCARNATION $ERGON_JOB >>@/ran\n"
                              "exit $(cat @/status)\n");
    check(0, "job 18", "submit --live @/live.yaml --like bert-2.6B:128:5000 @/train.sh");
    const char *token = token_in_spool();
    static const struct {
        const char *status;
        int exit_code;
        const char *message, *state;
    } runs[] = {{"7", 7, "the trainer ended with exit status 7", "loading"},
                {"85", 85, "the job has left its GPUs and continues later", "saved"},
                {"0", 0, "", "done"}};
    setenv("SLURM_JOB_ID", "18", 1);
    setenv("SLURM_JOB_NUM_NODES", "2", 1);
    setenv("SLURM_GPUS_ON_NODE", "3", 1);
    erg_text_printf(&line, "run-job @/spool/%s", token);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct erg_report_reader reader = {0};
        bool fresh;
        write_text("status", runs[i].status);
        check(runs[i].exit_code, runs[i].message, line.data);
        assert_ok(
            erg_job_folder_reports(&reader, &fresh, in_folder("spool"), token, geteuid(), &err),
            &err);
        assert_int_equal(reader.last.incarnation, i + 1);
        assert_string_equal(erg_job_state_names[reader.last.state], runs[i].state);
    }
    shell("grep -q -- '--nodes=2 --ntasks=6 --ntasks-per-node=3 --overcommit ' @/asked");
    shell("test \"$(cut -d' ' -f1 @/ran | tr '\\n' ' ')\" = '1 2 3 '");
    /* Slurm would not have put it back: asked for once, not for the failure and not for the end. */
    shell("test \"$(grep -c 'requeuehold 18' @/told)\" = 1");
    /* Nor for a job that has been cancelled, or that Slurm puts back. */
    write_text("status", "85");
    write_program("bin/squeue", "#!/bin/sh\necho COMPLETING\n");
    check(85, "continues later", line.data);
    write_program("bin/squeue", "#!/bin/sh\necho RUNNING\n");
    write_program("bin/scontrol", "#!/bin/sh\necho \"scontrol $*\" >>@/told\n"
                                  "echo 'RequeueExitHold         = 7,80-85'\n");
    check(85, "continues later", line.data);
    shell("test \"$(grep -c 'requeuehold 18' @/told)\" = 1");
    write_program("bin/squeue", "#!/bin/sh\necho CONFIGURING\n");
    write_program("bin/scontrol", "#!/bin/sh\necho 'Unable to contact slurm controller' >&2\n"
                                  "exit 1\n");
    check(85,
          "requeueing job 18: scontrol requeuehold 18: Unable to contact slurm controller; it ends",
          line.data);
    erg_text_release(&line);
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_JOB_NUM_NODES");
    unsetenv("SLURM_GPUS_ON_NODE");
    shell("rm -r @/spool/*");
}

/* ---- lists ---- */

static void lines_of_slurm_are_read(void **state)
{
    (void)state;
    struct erg_arena arena = {0};
    struct erg_live_line line;
    assert_true(erg_live_line_parse(&line,
                                    "12|1000|ann|RUNNING|None|a[1-2]|2|gres:gpu:3|1-02:03:04|"
                                    "ergon:1:0123456789abcdef",
                                    &arena));
    assert_string_equal(line.id, "12");
    assert_string_equal(line.nodes, "a[1-2]");
    assert_string_equal(line.token, "0123456789abcdef");
    assert_true(line.gpus == 6 && !line.waits && !line.ended);
    assert_true(line.since_s == 93784 && line.request.uid == 1000);
    assert_string_equal(erg_live_line_says(&line), "starts");
    assert_true(erg_live_line_parse(&line,
                                    "12|1000|ann|RUNNING|None|h1|1|gres/gpu:h100:8(S:0)|3:04|"
                                    "ergon:1:0123456789abcdef",
                                    &arena));
    assert_true(line.gpus == 8 && line.since_s == 184);
    assert_true(erg_live_line_parse(&line,
                                    "12|1000|ann|SPECIAL_EXIT|job requeued in special exit state||"
                                    "1|gres:gpu:1|0:00|ergon:1:0123456789abcdef",
                                    &arena));
    assert_true(line.waits && line.gpus == 0 && isnan(line.since_s));
    assert_true(erg_live_line_parse(
        &line, "12|1|ann|PENDING|Resources||1|gpu:1|0:00|ergon:1:0123456789abcdef", &arena));
    assert_string_equal(erg_live_line_says(&line), "placed, waits for its GPUs");
    assert_true(erg_live_line_parse(
        &line, "12|1|ann|PENDING|JobHeldUser||1|gpu:1|0:00|ergon:1:0123456789abcdef", &arena));
    assert_string_equal(erg_live_line_says(&line), "waits for its place");
    assert_true(erg_live_line_parse(
        &line, "12|1|ann|NODE_FAIL|None|h1|1|gpu:1|0:10|ergon:1:0123456789abcdef", &arena));
    assert_string_equal(erg_live_line_says(&line), "failed");
    static const char *const foreign[] = {
        "",
        "12|1000|ann|RUNNING",
        "12|1000|ann|RUNNING|None|h1|1|gpu:1|0:10|",
        "12|1000|ann|RUNNING|None|h1|1|gpu:1|0:10|ergon:1:0123456789abcdeF",
        "12|1000|ann|RUNNING|None|h1|1|gpu:1|0:10|ergon:1:0123456789abcdef0",
        "12|1000|ann|RUNNING|None|h1|1|gpu:1|0:10|my ergon:1:0123456789abcdef",
    };
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        assert_false(erg_live_line_parse(&line, foreign[i], &arena));
    erg_arena_release(&arena);
}

static void the_controller_gives_reasons(void **state)
{
    (void)state;
    struct erg_live_list list = {0};
    struct erg_live_line line;
    static const char status[] =
        "{\"schema_version\":1,\"at_unix_s\":1000,\"jobs\":[{\"token\":\"0000000000000000\"},"
        "{\"token\":\"0123456789abcdef\",\"reason\":\"no GPUs\",\"starts_unix_s\":1500.5},7]}";
    assert_true(erg_live_line_parse(
        &line, "1|1|ann|PENDING|JobHeldAdmin||1|gpu:1|0:00|ergon:1:0123456789abcdef", &list.arena));
    ERG_PUSH(&list, items, line);
    erg_live_list_status(&list, status, sizeof status - 1, 1400); /* too old */
    assert_true(!list.items[0].why && isnan(list.items[0].begins_unix_s));
    erg_live_list_status(&list, "[]", 2, 1100);
    erg_live_list_status(&list, status, 20, 1100);
    erg_live_list_status(&list, status, sizeof status - 1, 1100);
    assert_string_equal(list.items[0].why, "no GPUs");
    assert_true(list.items[0].begins_unix_s == 1500.5);
    erg_live_list_release(&list);
}

/* ---- layouts ---- */

static void check_layout(const struct erg_live_plan *plan, int nodes, int gpus_per_node,
                         const char *degrees, int used_nodes)
{
    struct erg_live_layout chosen;
    struct erg_error err;
    const struct erg_live_layout_request request = {.path = in_folder("job.yaml"),
                                                    .plan = plan,
                                                    .nodes = nodes,
                                                    .gpus_per_node = gpus_per_node};
    assert_ok(erg_live_layout_choose(&chosen, &request, &err), &err);
    if (strncmp(chosen.why.data, degrees, strlen(degrees)) != 0)
        fail_msg("%d x %d GPUs: %s, expected %s", nodes, gpus_per_node, chosen.why.data, degrees);
    assert_int_equal(chosen.nodes, used_nodes);
    assert_int_equal(chosen.ranks % chosen.nodes, 0);
    struct erg_job *job;
    assert_ok(erg_job_parse(&job, "chosen", chosen.job.data, chosen.job.count, NULL, &err), &err);
    assert_int_equal(erg_layout_batch(&job->layout), 12);
    assert_int_equal(erg_layout_gpus(&job->layout), chosen.ranks);
    erg_job_free(job);
    erg_live_layout_release(&chosen);
}

static void layouts_keep_the_batch(void **state)
{
    (void)state;
    const struct erg_live_plan none = {0};
    struct erg_live_plan plan = {.type = "a40", .nodes = 1, .gpus_per_node = 4};
    struct erg_text text = {0};
    erg_text_printf(&text, "%s", job_text);
    char *at = strstr(text.data, "microbatch_size: 2\nmicrobatches: 2");
    memcpy(at, "microbatch_size: 3\nmicrobatches: 4",
           strlen("microbatch_size: 3\nmicrobatches: 4"));
    write_text("job.yaml", text.data);
    check_layout(&none, 1, 1, "tensor 1 x context 1 x pipeline 1 x data 1, 4 microbatches of 3", 1);
    check_layout(&none, 1, 2, "tensor 1 x context 1 x pipeline 1 x data 2, 2 microbatches of 3", 1);
    check_layout(&none, 1, 3, "tensor 1 x context 1 x pipeline 1 x data 3, 2 microbatches of 2", 1);
    check_layout(&none, 3, 2, "tensor 1 x context 1 x pipeline 1 x data 6, 1 microbatch of 2", 3);
    /* 12 sequences are none of 5, of 8 and of 2 x 7 copies. */
    check_layout(&none, 1, 5, "tensor 1 x context 1 x pipeline 1 x data 4, 1 microbatch of 3", 1);
    check_layout(&none, 1, 8, "tensor 1 x context 1 x pipeline 1 x data 6, 1 microbatch of 2", 1);
    check_layout(&none, 2, 7, "tensor 1 x context 1 x pipeline 1 x data 12, 1 microbatch of 1", 2);
    plan.layout = "t=2,p=2,b=2";
    check_layout(&plan, 1, 4, "tensor 2 x context 1 x pipeline 2 x data 1, 6 microbatches of 2", 1);
    plan.layout = "t=3"; /* no layout of four heads */
    check_layout(&plan, 1, 4, "tensor 1 x context 1 x pipeline 1 x data 4, 1 microbatch of 3", 1);
    /* The job's own degrees where they fit. */
    erg_text_add(&text, "");
    at = strstr(text.data, "gpus_per_node: 1");
    at[strlen("gpus_per_node: ")] = '2';
    erg_text_add(&text, "tensor: 2\ndata: 1\n");
    write_text("job.yaml", text.data);
    check_layout(&none, 1, 4, "tensor 2 x context 1 x pipeline 1 x data 2, 2 microbatches of 3", 1);
    check_layout(&none, 1, 1, "tensor 1 x context 1 x pipeline 1 x data 1, 4 microbatches of 3", 1);
    write_text("job.yaml", job_text);
    erg_text_release(&text);
}

static int begin(void **state)
{
    char *path = getenv("PATH");
    struct erg_text whole = {0};
    if (make_job(state) != 0)
        return -1;
    shell("mkdir @/bin @/spool @/profiles");
    erg_text_printf(&whole, "%s:%s", in_folder("bin"), path);
    setenv("PATH", whole.data, 1);
    erg_text_release(&whole);
    unsetenv("ERGON_LIVE");
    struct erg_text live = with_folder(
        "slurm: {partition: ergon, spool: @/spool}\n"
        "profiles: profiles\n"
        "types:\n"
        "  - {name: a40, nodes: \"a[1-2]\", gpus_per_node: 4, memory_gb: 48, idle_power_w: 30}\n"
        "  - {name: h100, nodes: \"h[1-2]\", gpus_per_node: 4, memory_gb: 80, idle_power_w: 60}\n");
    write_text("live.yaml", live.data);
    erg_text_release(&live);
    write_text("profiles/prof_optimal.csv",
               "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,iter_time_s\n"
               "bert,2.6B,128,h100,1,2,0.1\n");
    /* GPUs of 0.125 GiB, and a job that does not fit into one. */
    shell("mkdir -p @/data/gpus @/deep && sed 's/^name: .*/name: Tiny/; s/^driver_names.*//; "
          "s/memory_gib: 80 /memory_gib: 0.125 /' " ERGON_TEST_SOURCE_DIR
          "/data/gpus/h100-sxm.yaml >@/data/gpus/tiny.yaml && "
          "sed 's/: 32,/: 64,/; s/: 48,/: 128,/; s/layers\": 2,/layers\": 100,/; s/: 8,/: 16,/' "
          "@/model/config.json >@/deep/config.json && "
          "sed 's/^model: model/model: deep/' @/job.yaml >@/deep.yaml && "
          "sed 's/name: h100/name: tiny/' @/live.yaml >@/small.yaml");
    setenv("ERGON_DATA", in_folder("data"), 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_submissions_are_named),
        cmocka_unit_test(models_of_folders_have_their_names),
        cmocka_unit_test(profiles_know_types_of_a_site),
        cmocka_unit_test(measured_rows_change_all_of_a_type),
        cmocka_unit_test(deadlines_are_read),
        cmocka_unit_test(sbatch_gets_all),
        cmocka_unit_test(jobs_bring_their_profile),
        cmocka_unit_test(jobs_run_by_their_plan),
        cmocka_unit_test(interrupted_measuring_leaves_no_job),
        cmocka_unit_test(lost_submissions_are_found),
        cmocka_unit_test(run_job_ends_as_the_trainer),
        cmocka_unit_test(lines_of_slurm_are_read),
        cmocka_unit_test(the_controller_gives_reasons),
        cmocka_unit_test(layouts_keep_the_batch),
    };
    return cmocka_run_group_tests(tests, begin, remove_folder);
}
