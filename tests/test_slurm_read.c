/*
 * What Slurm's commands print, read: recorded answers of a real one (tests/data/slurm/), forms of
 * newer and older releases, and texts of hostile users.
 */
#include "check.h"
#include "cluster/live/host_list.h"
#include "cluster/live/slurm_advice.h"
#include "cluster/live/slurm_command.h"
#include "cluster/live/slurm_read.h"
#include "io/file.h"

#define RECORDED ERGON_TEST_SOURCE_DIR "/tests/data/slurm/"

enum { A1, A2, H1, H2 };

static struct erg_gpu_type types[] = {
    {.name = (char[]){"a40"}, .nodes = 2, .gpus_per_node = 4},
    {.name = (char[]){"h100"}, .nodes = 2, .gpus_per_node = 4, .first_node = 2},
};
static const struct erg_fleet fleet = {.types = types, .types_count = 2, .nodes = 4, .gpus = 16};
static const char *const names[] = {"a1", "a2", "h1", "h2"};

/* The jobs of a text, in its order. */
struct jobs {
    struct erg_slurm_nodes nodes;
    struct erg_arena arena;
    struct erg_slurm_job *items;
    size_t count, capacity;
};

static void read_text(struct jobs *jobs, const char *text)
{
    const char *record;
    size_t length;
    *jobs = (struct jobs){0};
    erg_slurm_nodes_make(&jobs->nodes, &fleet, names);
    while (erg_slurm_next_job(&text, &record, &length)) {
        struct erg_slurm_job job;
        if (erg_slurm_read_job(&job, &jobs->nodes, "ergon", record, length, &jobs->arena))
            ERG_PUSH(jobs, items, job);
    }
}

static void release(struct jobs *jobs)
{
    for (size_t i = 0; i < jobs->count; i++)
        erg_placement_release(&jobs->items[i].job.placement);
    free(jobs->items);
    erg_arena_release(&jobs->arena);
    erg_slurm_nodes_release(&jobs->nodes);
}

static char *recorded(const char *path)
{
    char *text;
    struct erg_error err;
    assert_ok(erg_file_read(path, 0, &text, NULL, &err), &err);
    return text;
}

/* The only job of an id. */
static const struct erg_slurm_job *job_of(const struct jobs *jobs, uint32_t id)
{
    const struct erg_slurm_job *found = NULL;
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->items[i].job.id == id) {
            assert_null(found);
            found = &jobs->items[i];
        }
    assert_non_null(found);
    return found;
}

static void assert_slice(const struct erg_slurm_job *job, int index, int node, uint64_t gpus)
{
    assert_true(index < job->job.placement.count);
    assert_int_equal(job->job.placement.slices[index].node, node);
    assert_int_equal(job->job.placement.slices[index].gpus, gpus);
}

static void test_recorded_jobs(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        enum erg_live_state state;
        const char *state_text, *reason, *name, *token;
        int exit_status, restarts;
        bool single;
    } expected[] = {
        {1, ERG_LIVE_COMPLETED, "COMPLETED", "None", "wrap", "", 0, 0, true},
        {2, ERG_LIVE_HELD, "PENDING", "JobHeldUser", "a name UserId=evil(0) JobState=RUNNING",
         "00000000000000a1", -1, 0, true},
        {3, ERG_LIVE_RUNNING, "RUNNING", "None", "two", "00000000000000a2", -1, 0, true},
        {4, ERG_LIVE_RUNNING, "RUNNING", "None", "foreign", "", -1, 0, true},
        {5, ERG_LIVE_COMPLETING, "COMPLETING", "job_requeued_in_held_state", "deaf",
         "00000000000000a3", -1, 1, true},
        {6, ERG_LIVE_HELD, "SPECIAL_EXIT", "JobHeldUser", "left", "00000000000000a4", 85, 1, true},
        {7, ERG_LIVE_FAILED, "FAILED", "NonZeroExitCode", "failed", "00000000000000a5", 7, 0, true},
        {8, ERG_LIVE_COMPLETED, "COMPLETED", "None", "done", "00000000000000a6", 0, 0, true},
        {13, ERG_LIVE_RUNNING, "RUNNING", "None", "array", "", -1, 0, false},
        {10, ERG_LIVE_HELD, "PENDING", "JobHeldAdmin", "wrap", "00000000000000a7", -1, 0, true},
        {11, ERG_LIVE_HELD, "PENDING", "JobHeldUser", "het", "", -1, 0, false},
        {12, ERG_LIVE_HELD, "PENDING", "JobHeldUser", "het", "", -1, 0, false},
        {9, ERG_LIVE_PENDING, "PENDING", "JobArrayTaskLimit", "array", "", -1, 0, false},
    };
    char *text = recorded(RECORDED "jobs.txt");
    struct jobs jobs;
    read_text(&jobs, text);
    assert_int_equal(jobs.count, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < jobs.count; i++) {
        const struct erg_live_job *job = &jobs.items[i].job;
        assert_false(jobs.items[i].doubtful);
        assert_int_equal(job->id, expected[i].id);
        assert_int_equal(job->state, expected[i].state);
        assert_string_equal(job->state_text, expected[i].state_text);
        assert_string_equal(job->reason, expected[i].reason);
        assert_string_equal(job->name, expected[i].name);
        assert_string_equal(job->token, expected[i].token);
        assert_int_equal(job->exit_status, expected[i].exit_status);
        assert_int_equal(job->restarts, expected[i].restarts);
        assert_int_equal(job->single, expected[i].single);
        assert_int_equal(job->in_partition, job->id != 4);
        assert_int_equal(job->held_by_administrator, job->id == 10);
        assert_int_equal(job->uid, job->id == 10 ? 65534 : 0);
        assert_string_equal(job->user, job->id == 10 ? "nobody" : "root");
        assert_string_equal(job->account, "");
        /* The 27th of November 2026, about 22:18:40 UTC. */
        assert_near(job->submitted_unix_s, 1795817920, 60);
    }
    const struct erg_slurm_job *two = job_of(&jobs, 3), *deaf = job_of(&jobs, 5);
    assert_int_equal(two->job.placement.count, 2);
    assert_slice(two, 0, H1, 7);
    assert_slice(two, 1, H2, 7);
    assert_true(two->is_started && !two->which_unknown);
    assert_string_equal(two->asked_nodes, "h[1-2]");
    assert_int_equal(two->asked_gpus, 3);
    assert_int_equal(two->cpus_per_task, 1);
    assert_int_equal(job_of(&jobs, 4)->job.placement.count, 1);
    assert_slice(job_of(&jobs, 4), 0, A1, 6);
    assert_slice(job_of(&jobs, 13), 0, A1, 1);
    /* While it completes only the number is shown. */
    assert_true(deaf->which_unknown);
    assert_int_equal(deaf->job.placement.count, 1);
    assert_slice(deaf, 0, A2, 1);
    assert_int_equal(job_of(&jobs, 7)->job.placement.count, 0);
    assert_string_equal(job_of(&jobs, 2)->asked_nodes, "");
    release(&jobs);
    free(text);
}

static void test_recorded_hostile_jobs(void **state)
{
    (void)state;
    char *text = recorded(RECORDED "hostile.txt");
    struct jobs jobs;
    read_text(&jobs, text);
    /* 1, 14, 15, the forged 1, 16, 17, 18. */
    assert_int_equal(jobs.count, 7);
    assert_int_equal(jobs.items[3].job.id, 1);
    assert_string_equal(jobs.items[3].job.token, "00000000000000b2");
    const struct erg_slurm_job *broken = job_of(&jobs, 14);
    assert_false(broken->doubtful);
    assert_int_equal(broken->job.state, ERG_LIVE_HELD);
    assert_string_equal(broken->job.name, "new line");
    assert_string_equal(broken->job.token, "00000000000000b1");
    const struct erg_slurm_job *twice = job_of(&jobs, 16);
    assert_true(twice->doubtful);
    assert_int_equal(twice->job.state, ERG_LIVE_UNKNOWN);
    assert_string_equal(twice->job.token, "");
    assert_int_equal(twice->job.placement.count, 0);
    assert_false(job_of(&jobs, 17)->doubtful);
    assert_int_equal(job_of(&jobs, 17)->job.state, ERG_LIVE_HELD);
    assert_string_equal(job_of(&jobs, 18)->job.token, "");
    release(&jobs);
    free(text);
}

/* Every beginning of the recorded answer: no job says anything else than in the whole one but the
 * last, which may be cut. */
static void test_truncated(void **state)
{
    (void)state;
    char *text = recorded(RECORDED "jobs.txt");
    struct jobs whole;
    read_text(&whole, text);
    size_t length = strlen(text), checked = 0;
    for (size_t cut = length - 1; cut > 0; cut -= cut < 7 ? cut : 7) {
        struct jobs part;
        text[cut] = '\0';
        read_text(&part, text);
        for (size_t i = 0; i + 1 < part.count; i++, checked++) {
            assert_int_equal(part.items[i].job.id, whole.items[i].job.id);
            assert_int_equal(part.items[i].job.state, whole.items[i].job.state);
            assert_int_equal(part.items[i].job.placement.count, whole.items[i].job.placement.count);
        }
        if (part.count && part.items[part.count - 1].doubtful)
            assert_int_equal(part.items[part.count - 1].job.placement.count, 0);
        release(&part);
    }
    assert_true(checked > 1000);
    release(&whole);
    free(text);
}

#define HEAD "JobName=n UserId=u(7) GroupId=g(7) MCS_label=N/A Priority=5 Nice=0 Account=x "

/* Lines of other releases and of odd jobs. */
static void test_other_forms(void **state)
{
    (void)state;
    struct jobs jobs;
    read_text(&jobs,
              "No jobs in the system\n"
              "JobId=1 " HEAD "JobState=RUNNING Reason=None NewField=3 Partition=ergon "
              "NodeList=a1,h2 JOB_GRES=gpu:a40:1,gpu:h100:1 "
              "  Nodes=a1 CPU_IDs=0 Mem=0 GRES=gpu:a40:1(IDX:3)   Nodes=h2 CPU_IDs=0 Mem=0 "
              "GRES=gpu:h100:1(IDX:0) Command=x TresPerNode=gres/gpu:1\n"
              "JobId=2 " HEAD "JobState=SUSPENDED Reason=None Partition=ergon NodeList=a[1-2,9] "
              "Nodes=a[1-2,9] GRES=gpu:4(IDX:0-1,3),shard:2(IDX:0) Command=x\n"
              "JobId=3 " HEAD "JobState=PENDING Reason=None Partition=ergon Command=x\n"
              "JobId=4 " HEAD "JobState=RUNNING Reason=None Partition=ergonx NodeList=a1 Nodes=a1 "
              "GRES=gpu:2 Command=x Comment=ergon:1:0123456789abcdef\n"
              "JobId=5 PackJobId=5 PackJobOffset=0 " HEAD "JobState=BRAND_NEW Reason=None "
              "Partition=ergon Command=x\n"
              "JobId=6 " HEAD "JobState=FAILED Reason=None Partition=ergon ExitCode=0:9 Command=x "
              "Comment=ergon:1:0123456789ABCDEF\n"
              "JobId=7 " HEAD "JobState=FAILED Reason=None Partition=ergon JobState=PENDING "
              "Command=x\n"
              "JobId=8 JobName=n UserId=u v(4294967294) GroupId=g h(7) MCS_label=N/A Priority=0 "
              "JobState=PENDING Reason=None Partition=ergon Command=x Comment=ergon:1:"
              "0123456789abcdef0\n"
              "JobId=0 " HEAD "JobState=FAILED Reason=None Partition=ergon Command=x\n"
              "JobId=4294967296 " HEAD "JobState=FAILED Reason=None Partition=ergon Command=x\n"
              "JobId= \n");
    assert_int_equal(jobs.count, 8);
    const struct erg_slurm_job *job = job_of(&jobs, 1);
    assert_false(job->doubtful);
    assert_int_equal(job->job.uid, 7);
    assert_string_equal(job->job.account, "x");
    assert_int_equal(job->asked_gpus, 1);
    assert_true(isnan(job->job.submitted_unix_s));
    assert_int_equal(job->job.placement.count, 2);
    assert_slice(job, 0, A1, 8);
    assert_slice(job, 1, H2, 1);
    job = job_of(&jobs, 2);
    assert_int_equal(job->job.state, ERG_LIVE_UNKNOWN);
    assert_int_equal(job->job.placement.count, 2); /* a9 is not of the fleet */
    assert_true(job->which_unknown);               /* four GPUs, three bits */
    assert_slice(job, 0, A1, 15);
    assert_int_equal(job_of(&jobs, 3)->job.state, ERG_LIVE_PENDING);
    job = job_of(&jobs, 4);
    assert_false(job->job.in_partition);
    assert_string_equal(job->job.token, "0123456789abcdef");
    assert_true(job->which_unknown);
    assert_slice(job, 0, A1, 3);
    assert_false(job_of(&jobs, 5)->job.single);
    assert_int_equal(job_of(&jobs, 5)->job.state, ERG_LIVE_UNKNOWN);
    assert_int_equal(job_of(&jobs, 6)->job.exit_status, 137);
    assert_string_equal(job_of(&jobs, 6)->job.token, "");
    assert_true(job_of(&jobs, 7)->doubtful);
    job = job_of(&jobs, 8);
    assert_int_equal(job->job.uid, 4294967294u);
    assert_string_equal(job->job.user, "u v");
    assert_string_equal(job->job.token, "");
    release(&jobs);
}

static void test_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int count;
        uint64_t gpus;
        bool indexed;
        const char *type;
    } cases[] = {
        {"gpu:a40:4(IDX:0-3)", 4, 15, true, "a40"},
        {"gpu:a40:3(IDX:0-1,5)", 3, 35, true, "a40"},
        {"gpu:h100:0(IDX:N/A)", 0, 0, true, "h100"},
        {"gpu:a40:2(IDX:0-1),gpu:h100:1(IDX:4)", 3, 19, true, "a40"},
        {"gpu:4", 4, 0, false, ""},
        {"gpu", 1, 0, false, ""},
        {"gres/gpu:4", 4, 0, false, ""},
        {"gres:gpu:h100:4", 4, 0, false, "h100"},
        {"gres/gpu:h100=2", 2, 0, false, "h100"},
        {"gpu:a40:4(S:0-1)", 4, 0, false, "a40"},
        {"craynetwork:2,gpu:a40:2(IDX:1-2),shard:8(IDX:0)", 2, 6, true, "a40"},
        {"gpux:4", 0, 0, true, ""},
        {"gpu:a40:64(IDX:0-63)", 64, ~UINT64_C(0), true, "a40"},
        {"gpu:a40:99999999999999999999", 1, 0, false, "99999999999999999999"},
        {"gpu:a40:2(IDX:0-", 2, 0, false, "a40"},
        {"gpu:a40:2(IDX:70-90)", 2, 0, false, "a40"},
        {"(null)", 0, 0, true, ""},
        {"", 0, 0, true, ""},
        {",,(,", 0, 0, true, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_slurm_gres gres;
        erg_slurm_read_gres(&gres, cases[i].text, strlen(cases[i].text));
        if (gres.count != cases[i].count || gres.gpus != cases[i].gpus ||
            gres.indexed != cases[i].indexed || strcmp(gres.type, cases[i].type) != 0)
            fail_msg("'%s': %d GPUs, bits %llx, indexed %d, type '%s'", cases[i].text, gres.count,
                     (unsigned long long)gres.gpus, gres.indexed, gres.type);
        assert_int_equal(gres.mixed, i == 3);
    }
}

static void test_nodes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum erg_live_node_state state;
    } states[] = {
        {"IDLE", ERG_NODE_UP},
        {"MIXED+PLANNED", ERG_NODE_UP},
        {"ALLOCATED+RESERVED", ERG_NODE_UP},
        {"IDLE+DRAIN", ERG_NODE_DRAINS},
        {"MIXED+DRAIN+INVALID_REG", ERG_NODE_DRAINS},
        {"DOWN+DRAIN", ERG_NODE_DOWN},
        {"DOWN+NOT_RESPONDING", ERG_NODE_DOWN},
        {"DOWN*+DRAIN", ERG_NODE_DOWN},
        {"INVAL", ERG_NODE_DOWN},
        {"FUTURE", ERG_NODE_DOWN},
        {"UNKNOWN", ERG_NODE_UNKNOWN},
        {"UNKNOWN+NOT_RESPONDING", ERG_NODE_UNKNOWN},
        {"IDLE+NOT_RESPONDING", ERG_NODE_UNKNOWN},
        {"ALLOCATED*", ERG_NODE_UNKNOWN},
        {"IDLE+CLOUD+POWERED_DOWN", ERG_NODE_OFF},
        {"IDLE*+CLOUD+POWER", ERG_NODE_OFF},
        {"IDLE+POWERING_DOWN", ERG_NODE_CHANGES},
        {"IDLE+POWER_DOWN", ERG_NODE_CHANGES},
        {"MIXED+POWERING_UP+NOT_RESPONDING", ERG_NODE_CHANGES},
        {"IDLE+MAINTENANCE", ERG_NODE_DRAINS},
        {"", ERG_NODE_UNKNOWN},
        {"SOMETHING_NEW", ERG_NODE_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (erg_slurm_node_state(states[i].text) != states[i].state)
            fail_msg("'%s' is %d", states[i].text, erg_slurm_node_state(states[i].text));

    char *text = recorded(RECORDED "nodes.txt");
    const char *rest = text;
    struct erg_slurm_nodes nodes;
    struct erg_slurm_node node;
    struct erg_arena arena = {0};
    erg_slurm_nodes_make(&nodes, &fleet, names);
    static const uint64_t used[] = {7, 0, 7, 7};
    for (int i = 0; i < 4; i++) {
        assert_true(erg_slurm_next_node(&rest, &node, &nodes, &arena));
        assert_int_equal(node.node, i);
        assert_int_equal(node.live.state, i == A2 ? ERG_NODE_DRAINS : ERG_NODE_UP);
        assert_int_equal(node.has.count, 4);
        assert_string_equal(node.has.type, i < H1 ? "a40" : "h100");
        assert_true(node.is_used_known);
        assert_int_equal(node.used.gpus, used[i]);
        assert_true((strncmp(node.live.reason, "bad NodeName=h1 State=IDLE fan [root@", 37) == 0) ==
                    (i == A2));
    }
    assert_false(erg_slurm_next_node(&rest, &node, &nodes, &arena));
    rest = "NodeName=x9 State=IDLE\nNodeName=h2";
    assert_true(erg_slurm_next_node(&rest, &node, &nodes, &arena));
    assert_int_equal(node.node, -1);
    assert_true(erg_slurm_next_node(&rest, &node, &nodes, &arena));
    assert_int_equal(node.node, H2);
    assert_int_equal(node.live.state, ERG_NODE_UNKNOWN);
    assert_false(node.is_used_known);
    erg_slurm_nodes_release(&nodes);
    erg_arena_release(&arena);
    free(text);
}

static void test_failures_of_commands(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum erg_engine_answer answer;
    } cases[] = {
        {"slurm_load_jobs error: Invalid job id specified", ERG_ENGINE_GONE},
        {"Invalid user id for job 2\nslurm_suspend error: Invalid user id", ERG_ENGINE_REFUSED},
        {"Job has already finished for job 7", ERG_ENGINE_REFUSED},
        {"slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
         ERG_ENGINE_LATER},
        {"Unexpected message received for job 2", ERG_ENGINE_LATER},
        {"slurm_load_jobs error: Protocol authentication error", ERG_ENGINE_LATER},
        {"scontrol: fatal: Could not establish a configuration source", ERG_ENGINE_BROKEN},
        {"", ERG_ENGINE_REFUSED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(erg_slurm_classify(cases[i].text), cases[i].answer);
}

static void test_commands(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_text out = {0};
    setenv("SLURM_JOB_ID", "7", 1);
    setenv("SBATCH_HOLD", "1", 1);
    setenv("SLURM_CONF", "x", 1);
    setenv("TZ", "Asia/Tokyo", 1);
    const char *shows[] = {"sh", "-c",
                           "env | grep -E '^(SLURM|SBATCH|TZ|LC_ALL)' | sort; "
                           "readlink /proc/self/fd/0",
                           NULL};
    assert_int_equal(erg_slurm_command(shows, 10, &out, &err), ERG_ENGINE_DONE);
    assert_string_equal(out.data, "LC_ALL=C\nSLURM_CONF=x\nTZ=UTC\n/dev/null\n");
    unsetenv("SLURM_CONF");

    /* One that hangs is ended with all that it started. */
    const char *hangs[] = {"sh", "-c", "sleep 97 & sleep 98", NULL};
    assert_int_equal(erg_slurm_command(hangs, 0.2, &out, &err), ERG_ENGINE_LATER);
    assert_non_null(strstr(err.message, "no answer from Slurm within 0.2 s"));
    const char *left[] = {"sh", "-c", "echo; exec 1>&- 2>&-; exec sleep 98", NULL};
    assert_int_equal(erg_slurm_command(left, 0.2, &out, &err), ERG_ENGINE_LATER);

    const char *fails[] = {
        "sh", "-c", "echo 'reason' >&2; echo 'Invalid job id\a specified' >&2; exit 1", NULL};
    assert_int_equal(erg_slurm_command(fails, 10, NULL, &err), ERG_ENGINE_GONE);
    assert_non_null(strstr(err.message, "exit 1: Invalid job id\\x07 specified"));
    const char *silent[] = {"false", NULL};
    assert_int_equal(erg_slurm_command(silent, 10, NULL, &err), ERG_ENGINE_REFUSED);
    const char *dies[] = {"sh", "-c", "kill -TERM $$", NULL};
    assert_int_equal(erg_slurm_command(dies, 10, NULL, &err), ERG_ENGINE_LATER);
    /* As scancel does after 95 s without an answer; it is no signal. */
    const char *timed[] = {"sh", "-c", "echo Socket timed out >&2; exit 228", NULL};
    assert_int_equal(erg_slurm_command(timed, 10, NULL, &err), ERG_ENGINE_LATER);
    assert_non_null(strstr(err.message, "exit 228: Socket timed out"));
    const char *missing[] = {"no-such-command-of-slurm", NULL};
    assert_int_equal(erg_slurm_command(missing, 10, NULL, &err), ERG_ENGINE_BROKEN);
    assert_int_equal(err.status, ERG_SLURM_MISSING);

    /* More than a pipe holds, on both. */
    const char *much[] = {"sh", "-c",
                          "head -c 300000 /dev/zero | tr '\\0' x; head -c 300000 "
                          "/dev/zero | tr '\\0' y >&2",
                          NULL};
    assert_int_equal(erg_slurm_command(much, 20, &out, &err), ERG_ENGINE_DONE);
    assert_int_equal(out.count, 300000);
    erg_text_release(&out);
}

static void test_values(void **state)
{
    (void)state;
    struct erg_arena arena = {0};
    char *config = recorded(RECORDED "config.txt"),
         *partitions = recorded(RECORDED "partitions.txt");
    assert_string_equal(erg_slurm_value(config, "KillWait", &arena), "3 sec");
    assert_string_equal(erg_slurm_value(config, "RequeueExitHold", &arena), "85");
    assert_string_equal(erg_slurm_value(config, "RequeueExit", &arena), "(null)");
    assert_null(erg_slurm_value(config, "Wait", &arena));
    assert_string_equal(erg_slurm_value(partitions, "Nodes", &arena), "a[1-2],h[1-2]");
    assert_string_equal(erg_slurm_value(partitions, "PriorityTier", &arena), "10");
    free(config);
    free(partitions);
    erg_arena_release(&arena);
}

#define CONFIG(exits, wait, age, plugins)                                                          \
    "RequeueExit             = 85\nRequeueExitHold         = " exits                               \
    "\nKillWait                = " wait " sec\nMinJobAge               = " age                     \
    " sec\nJobSubmitPlugins        = " plugins "\n"

/* What slurm.conf says of nodes that stay on. */
static void test_sleep(void **state)
{
    (void)state;
    static const char program[] = "SuspendProgram          = /bin/off\n";
    static const struct {
        const char *config, *why; /* NULL: may be switched off */
    } cases[] = {
        {"SuspendExcNodes         = (null)\n", NULL},
        {"SuspendExcNodes         = h[1-9],k1\n", NULL},
        {"SuspendExcNodes         = h1,a[1-2]\n", "among SuspendExcNodes=h1,a[1-2] in slurm.conf"},
        {"SuspendExcNodes         = h[1-2]:1,a[1-4]:2\n", "among SuspendExcNodes="},
        {"SuspendExcNodes         = h[1-2]:1\n", NULL},
        {"SuspendExcNodes         = a[1\n", "among SuspendExcNodes="},
        {"SuspendExcParts         = (null)\n", NULL},
        {"SuspendExcParts         = ergo,ergons,her\n", NULL},
        {"SuspendExcParts         = x,other\n",
         "in a partition of SuspendExcParts=x,other in slurm.conf"},
        {"SuspendExcStates        = (null)\n", NULL},
        {"SuspendExcStates        = DRAIN,RESERVE,CLOUDS\n", NULL},
        {"SuspendExcStates        = drain,reserved\n",
         "its state IDLE+CLOUD+RESERVED is among SuspendExcStates=drain,reserved in slurm.conf"},
        {"SuspendExcStates        = NOT_RESPONDING,CLOUD\n", "among SuspendExcStates="},
    };
    const struct erg_slurm_node node = {
        .name = "a1", .state_text = "IDLE+CLOUD+RESERVED", .partitions = "ergon,other"};
    struct erg_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text config = {0};
        erg_text_printf(&config, "%s%s", program, cases[i].config);
        if (cases[i].why)
            assert_fails(erg_slurm_may_sleep(&node, config.data, &err), &err, cases[i].why);
        else
            assert_ok(erg_slurm_may_sleep(&node, config.data, &err), &err);
        erg_text_release(&config);
    }
    assert_fails(erg_slurm_may_sleep(&node, cases[0].config, &err), &err,
                 "slurm.conf has no SuspendProgram");
}

static void test_advice(void **state)
{
    (void)state;
    static const char own[] = "PartitionName=ergon PriorityTier=1 MinNodes=0 Nodes=h[1-4]\n"
                              "PartitionName=cpu PriorityTier=9 MinNodes=0 Nodes=c[1-4]\n";
    static const char shared[] = "PartitionName=ergon PriorityTier=5 Nodes=h[1-4]\n"
                                 "PartitionName=all PriorityTier=5 Nodes=c[1-4],h[4-7]\n";
    static const struct {
        const char *config, *partitions, *partition;
        bool fine[ERG_SLURM_SETTINGS];
        int fact;
        const char *says;
    } cases[] = {
        {CONFIG("85", "120", "300", "lua"),
         own,
         "ergon",
         {1, 1, 1, 1, 1},
         3,
         "partition ergon has PriorityTier 1, the highest on its nodes"},
        {CONFIG("(null)", "30", "30", "(null)"),
         shared,
         "ergon",
         {0, 0, 0, 0, 1},
         3,
         "but all, which shares nodes with it, has 5"},
        {CONFIG("80-84,86-90", "119", "299", "cray,lua"),
         own,
         NULL,
         {0, 0, 0, 1, 1},
         3,
         "partition cpu has"},
        {CONFIG("1,80-90", "600", "86400", "lua"),
         own,
         "nope",
         {1, 1, 1, 0, 1},
         3,
         "there is no partition nope"},
        {"", "", NULL, {0, 0, 0, 0, 1}, 1, "KillWait is not in the configuration"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_slurm_setting settings[ERG_SLURM_SETTINGS];
        erg_slurm_judge(cases[i].config, cases[i].partitions, cases[i].partition, settings);
        for (int s = 0; s < ERG_SLURM_SETTINGS; s++)
            if (settings[s].fine != cases[i].fine[s] || settings[s].fine != !settings[s].advice)
                fail_msg("case %zu: %s", i, settings[s].fact);
        if (!strstr(settings[cases[i].fact].fact, cases[i].says))
            fail_msg("case %zu: %s", i, settings[cases[i].fact].fact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_jobs),
        cmocka_unit_test(test_recorded_hostile_jobs),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_other_forms),
        cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_failures_of_commands),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
