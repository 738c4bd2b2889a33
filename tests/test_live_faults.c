/*
 * Faults of a live day, each on a real Slurm of its own (tests/live/mini-cluster.sh) with fake
 * trainers: whatever happens, no GPU has two jobs, no work that was committed is lost, every job
 * ends once, and jobs of others are left alone. That is read from what trainers logged and from
 * Slurm's records, not from what the controller says. LIVE_KILLS=50 makes a longer day of the first
 * test; LIVE_SEED draws other moments.
 */
#define _GNU_SOURCE /* random */

#include "live_cluster.h"

/* ---- the faults ---- */

static void test_controller_killed(void **state)
{
    (void)state;
    const char *given = getenv("LIVE_KILLS");
    const long kills = given ? atol(given) : 8;
    patience_s = fmax(patience_s, 6 * (double)kills);
    begin("");
    start_controller();
    submit_day(10, 2.5 * (double)kills, "");
    long killed = 0;
    for (; killed < kills && ended() < jobs_count; killed++) {
        wait_s(0.1 + random_s(2));
        end_controller(SIGKILL);
        wait_s(killed % 2 ? random_s(2) : 0);
        if (killed % 4 == 2)
            shell_of("rm -f @/live.yaml.journal @/live.yaml.journal-wal @/live.yaml.journal-shm");
        start_controller();
    }
    assert_true(killed >= kills / 2);
    await_ended(jobs_count);
    end_controller(SIGTERM);
    const struct steps *steps = read_steps();
    check_steps(steps);
    check_all_left(steps);
    check_ends_once();
    for (size_t i = 0; i < jobs_count; i++) {
        char placed[60];
        snprintf(placed, sizeof placed, "job %ld: from ", jobs[i].id);
        const long meant = lines_with("schedule.log", placed);
        if (incarnations(steps, jobs[i].token) > meant + killed)
            fail_msg("job %ld: %ld incarnations of %ld decisions after %ld kills", jobs[i].id,
                     incarnations(steps, jobs[i].token), meant, killed);
    }
    printf("%ld kills: %zu incarnations of %zu jobs\n", killed, steps->lives_count, jobs_count);
}

static int end_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void lease_of_elsewhere(double seconds)
{
    char text[100];
    snprintf(text, sizeof text, "someone\nelsewhere\nboot\npids\n1\n%.3f\n", seconds);
    write_text("spool/.controller/lease.1000", text);
}

static void test_two_controllers(void **state)
{
    (void)state;
    begin("");
    start_controller();
    await_line("spool/.controller/lease.1", "\n");
    submit_day(3, 3, "");
    assert_int_not_equal(end_of(start_schedule("--policy", "ergon", "second.log")), 0);
    assert_int_equal(lines_with("second.log", "another controller uses the journal"), 1);
    /* A journal of its own makes it no other cluster. */
    assert_int_not_equal(end_of(start_schedule("--journal", in_folder("other"), "third.log")), 0);
    assert_int_equal(lines_with("third.log", "another controller"), 1);
    assert_true(controller_lives());
    await_ended(jobs_count);
    /* Another host's lease: it stops within ten seconds, and begins once that is over. */
    lease_of_elsewhere(15);
    assert_int_not_equal(end_of(controller), 0);
    assert_int_equal(lines_with("schedule.log", "on host 'elsewhere', holds"), 1);
    lease_of_elsewhere(3);
    start_controller();
    assert_int_not_equal(end_of(controller), 0);
    wait_s(3);
    start_controller();
    submit(4, 40, "");
    await_ended(jobs_count);
    end_controller(SIGTERM);
    check_steps(read_steps());
    check_ends_once();
}

static void test_slurmctld_ended(void **state)
{
    (void)state;
    begin("");
    start_controller();
    submit_day(8, 10, "");
    for (int i = 0; i < 3; i++) {
        wait_s(1 + random_s(1.5));
        mini("down", "slurmctld");
        wait_s(i * 3.5); /* commands wait for the first seconds by themselves */
        mini("up", "slurmctld");
    }
    await_ended(jobs_count);
    end_controller(SIGTERM);
    const struct steps *steps = read_steps();
    check_steps(steps);
    check_all_left(steps);
    check_ends_once();
    assert_true(lines_with("schedule.log", "the resource manager answers again") > 0);
}

/* Slurm forgets what was in the seconds before: a job may run anew, none is lost that was known. */
static struct erg_reconcile_limits quick_limits(void)
{
    struct erg_reconcile_limits limits;
    erg_reconcile_limits_init(&limits);
    limits.save_least_s = 3;
    limits.retry_s = 2;
    limits.avoid_s = 3;
    return limits;
}

static void test_slurmctld_killed(void **state)
{
    (void)state;
    const struct erg_reconcile_limits limits = quick_limits();
    begin("");
    start_quick_controller(&limits);
    submit_day(8, 12, "");
    wait_s(5.5);
    for (int i = 0; i < 2; i++) {
        wait_s(random_s(3));
        mini("kill", "slurmctld");
        wait_s(0.5);
        mini("up", "slurmctld");
    }
    await_ended(jobs_count);
    end_controller(SIGKILL);
    check_steps(read_steps());
}

static void check_cancelled(const struct steps *steps, const struct day_job *job, double at_s)
{
    assert_int_equal(ends(job->id, "CANCELLED"), 1);
    assert_int_equal(ends(job->id, "COMPLETED"), 0);
    for (size_t k = 0; k < steps->lives_count; k++)
        if (strcmp(steps->lives[k].token, job->token) == 0 && steps->lives[k].from_s > at_s + 1)
            fail_msg("job %ld runs %.1f s after its user cancelled it", job->id,
                     steps->lives[k].from_s - at_s);
}

static void test_users_cancel(void **state)
{
    (void)state;
    enum { CANCELLED = 6 };
    double at_s[CANCELLED];
    bool late[CANCELLED]; /* it was done before: on a busy host submissions take long */
    size_t cancelled = 0;
    begin("");
    start_controller();
    submit_day(12, 12, "");
    for (size_t i = 0; i < CANCELLED; i++) {
        wait_s(random_s(1));
        if (shell_of("scancel %ld", jobs[2 * i].id) != 0)
            fail_msg("scancel fails");
        at_s[i] = unix_s();
        late[i] = ends(jobs[2 * i].id, "COMPLETED") > 0;
        cancelled += !late[i];
    }
    assert_in_range(cancelled, 2, CANCELLED);
    await_ended(jobs_count - cancelled);
    wait_s(2);
    end_controller(SIGTERM);
    const struct steps *steps = read_steps();
    check_steps(steps);
    for (size_t i = 0; i < jobs_count; i++)
        if (i % 2 || i / 2 >= CANCELLED || late[i / 2])
            assert_int_equal(ends(jobs[i].id, "COMPLETED"), 1);
        else
            check_cancelled(steps, &jobs[i], at_s[i / 2]);
}

/* What a user may do to the own job, at random moments: refused or not, nothing is lost by it. */
static void test_users_commands(void **state)
{
    (void)state;
    static const char *const does[] = {
        "scontrol release $J",
        "scontrol requeue $J",
        "scontrol hold $J",
        "scontrol update JobId=$J ReqNodeList=b1",
        "scontrol update JobId=$J NumNodes=1-1 StartTime=now",
        "scontrol requeuehold $J",
        "scontrol update JobId=$J Gres=gpu:4",
    };
    begin("");
    start_controller();
    submit_day(8, 10, "");
    const size_t foreign = 5; /* leaves: the job is its user's from then on */
    for (int i = 0; i < 14; i++) {
        const size_t at = (size_t)random() % 5;
        wait_s(random_s(0.6));
        shell_of("J=%ld; %s >>@/user.log 2>&1", jobs[at].id, does[i % 7]);
    }
    const bool over = ends(jobs[foreign].id, "COMPLETED") > 0;
    shell_of("scontrol update JobId=%ld Comment= >>@/user.log 2>&1", jobs[foreign].id);
    if (!over) /* where it is held, its user starts it */
        shell_of("scontrol update JobId=%ld NumNodes=1-1 NumTasks=1 NumCPUs=1 ReqNodeList= "
                 "Gres=gpu:1 >>@/user.log 2>&1; scontrol release %ld >>@/user.log 2>&1",
                 jobs[foreign].id, jobs[foreign].id);
    await_ended(jobs_count);
    end_controller(SIGTERM);
    check_steps(read_steps());
    for (size_t i = 0; i < jobs_count; i++)
        assert_int_equal(ends(jobs[i].id, "COMPLETED"), 1);
}

static void test_foreign_jobs(void **state)
{
    (void)state;
    enum { FOREIGN = 6 };
    long ids[FOREIGN];
    begin("");
    ids[0] = submit_foreign("other", 4, 6);
    start_controller();
    submit_day(8, 8, "");
    for (int i = 1; i < FOREIGN; i++) {
        ids[i] = submit_foreign("other", 1 + i % 4, 3);
        wait_s(random_s(2));
    }
    await_ended(jobs_count);
    for (int i = 0; i < FOREIGN; i++)
        while (ends(ids[i], "COMPLETED") == 0)
            wait_s(0.2);
    end_controller(SIGTERM);
    const struct steps *steps = read_steps();
    check_steps(steps);
    check_all_left(steps);
    check_ends_once();
    for (int i = 0; i < FOREIGN; i++) {
        char token[24];
        snprintf(token, sizeof token, "foreign-%ld", ids[i]);
        assert_int_equal(incarnations(steps, token), 1);
        assert_int_equal(ends(ids[i], "COMPLETED"), 1);
    }
}

/* An urgent job of somebody else's takes the GPUs of ours: these save, leave and come back, and are
 * held before they can start beside the controller's back; it gives them other GPUs, or the same
 * once that job is over. */
static void test_preempted(void **state)
{
    (void)state;
    begin_with("", "EXTRA='PreemptType=preempt/partition_prio\\nPreemptMode=REQUEUE\\n"
                   "PartitionName=urgent Nodes=h1 PriorityTier=100 PreemptMode=OFF State=UP'");
    start_controller();
    submit(8, 300, "");
    await_line("steps", " h1 ");
    submit_day(3, 4, "");
    wait_s(1.5);
    const double asked_s = unix_s();
    const long urgent = submit_foreign("urgent", 8, 4);
    await_ended(jobs_count);
    while (ends(urgent, "COMPLETED") == 0)
        wait_s(0.2);
    end_controller(SIGTERM);
    const struct steps *steps = read_steps();
    check_steps(steps);
    check_all_left(steps);
    check_ends_once();
    assert_int_equal(ends(urgent, "COMPLETED"), 1);
    char token[24];
    snprintf(token, sizeof token, "foreign-%ld", urgent);
    assert_int_equal(incarnations(steps, token), 1);
    long before = 0, after = 0; /* incarnations of the job that was there */
    double began_s = NAN;
    for (size_t k = 0; k < steps->lives_count; k++)
        if (strcmp(steps->lives[k].token, token) == 0)
            began_s = steps->lives[k].from_s;
    for (size_t k = 0; k < steps->lives_count; k++)
        if (strcmp(steps->lives[k].token, jobs[0].token) == 0)
            *(steps->lives[k].from_s < began_s ? &before : &after) += 1;
    printf("the urgent job starts %.1f s after it came; the other had %ld incarnations before, "
           "%ld after\n",
           began_s - asked_s, before, after);
    assert_true(before >= 1 && after >= 1);
    /* It was held before it could start again by itself. */
    assert_true(before + after <= lines_with("schedule.log", "job 1: place, since"));
}

static void test_trainers_misbehave(void **state)
{
    (void)state;
    const struct erg_reconcile_limits limits = quick_limits();
    begin("");
    submit(8, 700, "ignore=1 checkpoint_s=3");
    submit(4, 100, "exit=7 exits=9");
    submit(2, 120, "dies_saving=1");
    const size_t good = jobs_count;
    start_quick_controller(&limits);
    wait_s(4); /* the first has GPUs that these want, too */
    submit_day(6, 6, "");
    await_line("schedule.log", "it failed 3 times without a new checkpoint; its last exit status");
    await_ended(jobs_count - 1);
    end_controller(SIGKILL);
    const struct steps *steps = read_steps();
    check_steps(steps);
    assert_int_equal(incarnations(steps, jobs[1].token), 3);
    assert_int_equal(ends(jobs[1].id, "COMPLETED"), 0);
    assert_true(incarnations(steps, jobs[2].token) >= 2);
    assert_int_equal(ends(jobs[0].id, "COMPLETED"), 1);
    for (size_t i = good; i < jobs_count; i++)
        assert_int_equal(ends(jobs[i].id, "COMPLETED"), 1);
}

static void test_nodes_fail(void **state)
{
    (void)state;
    begin("");
    start_controller();
    submit_day(8, 14, "");
    wait_s(2);
    assert_int_equal(shell_of("scontrol update NodeName=b1 State=DOWN Reason=test"), 0);
    assert_int_equal(shell_of("scontrol update NodeName=b2 State=DRAIN Reason=test"), 0);
    await_line("schedule.log", "node b2 is draining: test");
    wait_s(3);
    const double drained_s = unix_s();
    wait_s(4);
    const double back_s = unix_s();
    shell_of("scontrol update NodeName=b1 State=RESUME 2>/dev/null"); /* if it has not come back */
    assert_int_equal(shell_of("scontrol update NodeName=b2 State=RESUME"), 0);
    await_line("schedule.log", "node b2 is up");
    mini("kill", "b2");
    await_ended(jobs_count);
    end_controller(SIGTERM);
    const struct steps *steps = read_steps();
    check_steps(steps);
    for (size_t k = 0; k < steps->stretches_count; k++) {
        const struct stretch *one = &steps->stretches[k];
        if (strncmp(one->gpu, "b2", 2) == 0 && one->from_s > drained_s && one->from_s < back_s)
            fail_msg("job %s starts on %s, which takes none", one->token, one->gpu);
    }
    for (size_t i = 0; i < jobs_count; i++)
        assert_int_equal(ends(jobs[i].id, "COMPLETED"), 1);
}

static void test_garbage(void **state)
{
    (void)state;
    begin("");
    submit_day(3, 4, "");
    const size_t good = jobs_count;
    for (int i = 0; i < 4; i++)
        submit(1, 40, "");
    const struct day_job *bad = &jobs[good];
    jobs_count = good;
    assert_int_equal(
        shell_of("cd @/spool/%s; mv request.json x; ln -s x request.json", bad[0].token), 0);
    assert_int_equal(shell_of("cd @/spool/%s; rm request.json; mkfifo request.json", bad[1].token),
                     0);
    if (geteuid() == 0)
        assert_int_equal(shell_of("chown 12345 @/spool/%s/request.json", bad[2].token), 0);
    else
        assert_int_equal(shell_of("echo >@/spool/%s/request.json", bad[2].token), 0);
    assert_int_equal(shell_of("cd @/spool/%s; sed -i 's/\"has_profile\": *false/\"has_profile\": "
                              "true/' request.json; head -c 3000 /dev/urandom >profile.csv",
                              bad[3].token),
                     0);
    start_controller();
    for (int i = 0; i < 20; i++) {
        shell_of(
            "for job in %s %s; do { printf '{\"v\":1,\"incarnation\":1,\"state\":\"trai\\n'; "
            "printf '{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":NaN}\\n'; "
            "printf '{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":-5}\\n'; "
            "head -c 9000 /dev/zero | tr '\\0' x; printf '\\n'; head -c 200 /dev/urandom; "
            "printf '\\n'; } >>@/spool/$job/reports.jsonl; done",
            jobs[0].token, jobs[1].token);
        wait_s(0.1);
    }
    await_ended(jobs_count);
    end_controller(SIGTERM);
    check_steps(read_steps());
    check_ends_once();
    for (int i = 0; i < 4; i++) {
        char text[60];
        snprintf(text, sizeof text, "job %ld is left alone", bad[i].id);
        assert_int_equal(lines_with("schedule.log", text), 1);
        snprintf(text, sizeof text, "job %ld: ", bad[i].id);
        assert_int_equal(lines_with("schedule.log", text), 0); /* nothing is done to it */
    }
    for (int i = 0; i < 2; i++) {
        char text[80];
        snprintf(text, sizeof text, "job %ld: lines of its reports are ignored", jobs[i].id);
        assert_int_equal(lines_with("schedule.log", text), 1);
    }
}

static void test_spool_full(void **state)
{
    (void)state;
    const struct erg_reconcile_limits limits = quick_limits();
    begin("");
    if (mount("spool", in_folder("spool"), "tmpfs", MS_NOSUID, "size=400k,mode=1777") != 0) {
        mini("stop", "");
        skip();
    }
    submit_day(3, 14, "checkpoint_s=1000");
    start_quick_controller(&limits);
    await_line("schedule.log", ": place, since");
    wait_s(2);
    shell_of("dd if=/dev/zero of=@/spool/fill bs=1k 2>/dev/null");
    wait_s(13); /* the lease has to be renewed in that time */
    const bool lived = controller_lives();
    shell_of("rm @/spool/fill");
    if (!lived)
        show();
    assert_true(lived);
    wait_s(1);
    assert_true(controller_lives());
    end_controller(SIGKILL);
    umount2(in_folder("spool"), MNT_DETACH);
    check_steps(read_steps());
    assert_in_range(lines_with("schedule.log", "status.json"), 1, 3);
}

static void test_power_cap(void **state)
{
    (void)state;
    const double cap_w = 4000;
    const struct erg_reconcile_limits limits = quick_limits();
    begin("power_cap_w: 4000\n");
    start_quick_controller(&limits);
    submit_day(8, 8, "");
    for (int i = 0; i < 3; i++) { /* what was told must be known to the next, too */
        wait_s(1 + random_s(2));
        end_controller(SIGKILL);
        if (i == 1)
            shell_of("rm -f @/live.yaml.journal @/live.yaml.journal-wal @/live.yaml.journal-shm");
        start_quick_controller(&limits);
    }
    await_ended(jobs_count);
    end_controller(SIGKILL);
    struct steps *steps = read_steps();
    check_steps(steps);
    check_ends_once();
    const double most_w = most_drawn_w(steps);
    printf("at most %.0f W of %.0f W\n", most_w, cap_w);
    if (most_w > cap_w + 1)
        show();
    assert_true(most_w > 2000);
    assert_true(most_w <= cap_w + 1);
}

/* ---- nodes that save power ---- */

/* Until as many nodes as that are off, for Slurm and in truth: SuspendProgram has ended slurmd. */
static void await_nodes_off(long count)
{
    for (int i = 0; i < 300; i++) {
        if (shell_of("test $(scontrol -o show node | grep -c '+POWERED_DOWN ') = %ld && "
                     "test $('" ERGON_TEST_SOURCE_DIR
                     "/tests/live/mini-cluster.sh' list @/mini | grep -c ' -$') = %ld",
                     count, count) == 0)
            return;
        wait_s(0.1);
    }
    show();
    shell_of("scontrol -o show node | grep -o 'NodeName=[^ ]*\\|State=[^ ]*'");
    fail_msg("%ld nodes should be off", count);
}

/* A job keeps its nodes on; a node that is off is switched on for the job that comes next. */
static void test_nodes_save_power(void **state)
{
    (void)state;
    begin_with("power_saving: {after_s: 60, wake_s: 60}\n", "POWER=86400");
    submit(8, 100000, ""); /* on h1, or on both others */
    controller = start_schedule("--policy", "fcfs", "schedule.log");
    await_line("steps", " step ");
    const bool on_h1 = lines_with("steps", " h1 ") > 0;
    const long idle = on_h1 ? 2 : 1;
    await_nodes_off(idle);
    assert_int_equal(lines_with("schedule.log", ": sleeps, since no job needs it"), idle);
    assert_int_equal(lines_with("schedule.log", ": wake"), 0);
    const double off_s = unix_s();
    submit(4, 30, "");
    await_ended(1);
    assert_int_equal(ends(jobs[1].id, "COMPLETED"), 1);
    assert_true(lines_with("schedule.log", "job 2: wake of node ") >= 1);
    assert_int_equal(shell_of("scancel %ld; for i in $(seq 300); do test -z \"$(squeue -h)\" && "
                              "exit 0; sleep 0.1; done; exit 1",
                              jobs[0].id),
                     0);
    end_controller(SIGTERM);
    const struct steps *steps = read_steps();
    check_steps(steps);
    assert_int_equal(incarnations(steps, jobs[0].token), 1);
    for (size_t k = 0; k < steps->stretches_count; k++) {
        const struct stretch *one = &steps->stretches[k];
        const bool first = strcmp(one->token, jobs[0].token) == 0;
        assert_int_equal(strncmp(one->gpu, "h1", 2) == 0, first == on_h1);
        assert_true(first || one->from_s > off_s);
    }
}

static int end(void **state)
{
    if (folder[0] && access(in_folder("mini"), F_OK) == 0)
        shell_of("'" ERGON_TEST_SOURCE_DIR "/tests/live/mini-cluster.sh' stop @/mini 2>/dev/null");
    umount2(in_folder("spool"), MNT_DETACH);
    return remove_folder(state);
}

/* Without an argument those that are over in half a minute; an argument picks by name, of all. */
int main(int argc, char **argv)
{
    if (system("PATH=$PATH:/usr/sbin:/sbin; command -v slurmctld slurmd munged >/dev/null") != 0) {
        puts("skipped: Slurm or munge is not installed");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controller_killed),
        cmocka_unit_test(test_two_controllers),
        cmocka_unit_test(test_users_cancel),
        cmocka_unit_test(test_foreign_jobs),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_power_cap),
        cmocka_unit_test(test_nodes_save_power),
        cmocka_unit_test(test_slurmctld_ended),
        cmocka_unit_test(test_slurmctld_killed),
        cmocka_unit_test(test_users_commands),
        cmocka_unit_test(test_trainers_misbehave),
        cmocka_unit_test(test_preempted),
        cmocka_unit_test(test_nodes_fail),
        cmocka_unit_test(test_spool_full),
    };
    enum { QUICK = 7 };
    struct CMUnitTest chosen[sizeof tests / sizeof *tests];
    size_t count = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (argc < 2 ? i < QUICK : strstr(tests[i].name, argv[1]) != NULL)
            chosen[count++] = tests[i];
    return run_side_by_side(chosen, count, make_folder, end);
}
