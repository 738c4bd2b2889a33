/*
 * Clock control on the fake NVML: locks, refusals, and a guardian in trouble.
 */
#include "fake_clocks.h"
#include "side_by_side.h"
#include "telemetry/claim.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A driver in the state that `commands` say, and clocks of the GPUs `select` opened on it. */
struct rig {
    struct world world;
    struct erg_gpus *gpus;
    struct erg_clocks *clocks;
    struct erg_error err;
};

static void open_clocks(struct rig *rig, const char *select)
{
    assert_ok(erg_gpus_open(&rig->gpus, select, &rig->err), &rig->err);
    assert_ok(erg_clocks_open(&rig->clocks, rig->gpus, &rig->err), &rig->err);
}

static struct rig rig_begin(const char *commands, const char *select)
{
    struct rig rig = {.world = world_begin(commands)};
    open_clocks(&rig, select);
    return rig;
}

static void close_clocks(struct rig *rig)
{
    assert_ok(erg_clocks_close(rig->clocks, &rig->err), &rig->err);
    erg_gpus_close(rig->gpus);
}

static void test_supported_clocks(void **state)
{
    (void)state;
    struct world world = world_begin("");
    struct erg_error err = {0};
    struct erg_gpus *gpus;
    struct erg_clock_list list;
    assert_ok(erg_gpus_open(&gpus, "all", &err), &err);
    assert_ok(erg_clocks_supported(gpus, 1, &list, &err), &err);
    assert_int_equal(list.count, 110);
    assert_int_equal(list.clocks_mhz[0], 345);
    assert_int_equal(list.clocks_mhz[1], 360);
    assert_int_equal(list.clocks_mhz[109], 1980);
    erg_clock_list_release(&list);
    assert_null(list.clocks_mhz);
    erg_gpus_close(gpus);
    world_end(&world);
}

static void test_lock_and_reset(void **state)
{
    (void)state;
    struct rig rig = rig_begin("", "all");
    enum erg_clock_seen seen = ERG_CLOCK_BELOW;
    assert_int_equal(latest_of(&rig.world, 0).line, 0); /* opening touches nothing */
    assert_ok(erg_clocks_reset(rig.clocks, 0, &rig.err), &rig.err);
    assert_int_equal(latest_of(&rig.world, 0).line, 0);

    assert_ok(erg_clocks_lock(rig.clocks, 0, 1200, &seen, &rig.err), &rig.err);
    assert_int_equal(seen, ERG_CLOCK_HELD);
    assert_int_equal(lock_of(&rig.world, 0), 1200);
    assert_int_equal(latest_of(&rig.world, 1).line, 0);
    struct erg_gpu_sample sample;
    erg_gpu_read(rig.gpus, 0, UINT64_C(1) << ERG_METRIC_SM_CLOCK, &sample);
    assert_int_equal(sample.readings[ERG_METRIC_SM_CLOCK].value, 1200);

    assert_ok(erg_clocks_lock(rig.clocks, 0, 1980, NULL, &rig.err), &rig.err);
    assert_int_equal(lock_of(&rig.world, 0), 1980);
    assert_ok(erg_clocks_reset(rig.clocks, 0, &rig.err), &rig.err);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    assert_ok(erg_clocks_lock(rig.clocks, 0, 345, NULL, &rig.err), &rig.err);
    assert_int_equal(lock_of(&rig.world, 0), 345);
    close_clocks(&rig);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    assert_int_equal(latest_of(&rig.world, 0).process, getpid()); /* not left to the guardian */
    world_end(&rig.world);
}

static void test_two_gpus(void **state)
{
    (void)state;
    struct rig rig = rig_begin("", "1,0");
    /* index 0 of the list is the driver's GPU 1 */
    assert_ok(erg_clocks_lock(rig.clocks, 0, 900, NULL, &rig.err), &rig.err);
    assert_ok(erg_clocks_lock(rig.clocks, 1, 1500, NULL, &rig.err), &rig.err);
    size_t first = (size_t)erg_gpus_info(rig.gpus, 0)->index;
    assert_int_equal(lock_of(&rig.world, (int)first), 900);
    assert_int_equal(lock_of(&rig.world, 1 - (int)first), 1500);
    assert_ok(erg_clocks_reset(rig.clocks, 0, &rig.err), &rig.err);
    assert_int_equal(lock_of(&rig.world, (int)first), 0);
    assert_int_equal(lock_of(&rig.world, 1 - (int)first), 1500);
    close_clocks(&rig);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    assert_int_equal(lock_of(&rig.world, 1), 0);
    world_end(&rig.world);
}

static void test_a_clock_the_gpu_does_not_have(void **state)
{
    (void)state;
    struct rig rig = rig_begin("", "all");
    assert_fails(erg_clocks_lock(rig.clocks, 0, 1213, NULL, &rig.err), &rig.err,
                 "GPU 0 (NVIDIA Fake H200) at 1213 MHz: it has no such clock, the nearest are "
                 "1200 and 1215 MHz");
    assert_int_equal(rig.err.status, ERG_FAILED);
    assert_fails(erg_clocks_lock(rig.clocks, 0, 344, NULL, &rig.err), &rig.err,
                 "from 345 to 1980 MHz only");
    assert_fails(erg_clocks_lock(rig.clocks, 0, 2000, NULL, &rig.err), &rig.err,
                 "from 345 to 1980 MHz only");
    assert_int_equal(latest_of(&rig.world, 0).line, 0);
    close_clocks(&rig);
    world_end(&rig.world);
}

/* ---- refusals ---- */

/* Locking GPU 0 fails with `part` in the message, leaves it unlocked, and GPU 1 can be locked. */
static void check_refusal(const char *commands, const char *part)
{
    struct rig rig = rig_begin(commands, "all");
    assert_fails(erg_clocks_lock(rig.clocks, 0, 1200, NULL, &rig.err), &rig.err, part);
    assert_int_equal(rig.err.status, ERG_NO_DEVICE);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    assert_ok(erg_clocks_lock(rig.clocks, 1, 1200, NULL, &rig.err), &rig.err);
    assert_int_equal(lock_of(&rig.world, 1), 1200);
    close_clocks(&rig);
    assert_int_equal(lock_of(&rig.world, 1), 0);
    world_end(&rig.world);
}

static void test_refusals(void **state)
{
    (void)state;
    check_refusal("gpu 0 nolocks\n", "no permission, expected root");
    check_refusal("gpu 0 fail ResetGpuLockedClocks 4\n", "no permission, expected root");
    check_refusal("gpu 0 fail SetGpuLockedClocks 3\n", "not supported by this GPU or driver, "
                                                       "expected a whole GPU of the Volta");
    check_refusal("gpu 0 fail GetSupportedGraphicsClocks 3\n", "listing the SM clocks of GPU 0");
    check_refusal("gpu 0 fail GetClockInfo 999\n", "reading the SM clock of GPU 0");
    check_refusal("gpu 0 fail SetGpuLockedClocks 15\n", "has fallen off the bus");
    check_refusal("gpu 0 stuck\n", "at 1200 MHz: the driver accepted that, but 0.5 s later it runs "
                                   "at 1980 MHz");
}

static void test_an_old_driver(void **state)
{
    (void)state;
    struct rig rig = {.world = world_begin("")};
    setenv("ERGON_NVML", ERGON_TEST_FAKE_NVML_OLD, 1);
    open_clocks(&rig, "all");
    assert_fails(erg_clocks_lock(rig.clocks, 0, 1200, NULL, &rig.err), &rig.err,
                 "not in this driver's library, expected a newer driver");
    assert_int_equal(rig.err.status, ERG_NO_DEVICE);
    close_clocks(&rig);
    world_end(&rig.world);
}

static void test_an_idle_gpu_is_left_to_the_caller(void **state)
{
    (void)state;
    struct rig rig = rig_begin("gpu * clock 345\ngpu * stuck\n", "all");
    enum erg_clock_seen seen = ERG_CLOCK_HELD;
    assert_ok(erg_clocks_lock(rig.clocks, 0, 1200, &seen, &rig.err), &rig.err);
    assert_int_equal(seen, ERG_CLOCK_BELOW);
    assert_int_equal(lock_of(&rig.world, 0), 1200);
    close_clocks(&rig);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    world_end(&rig.world);
}

/* NVML does not tell of it, so it cannot be put back; but it stays until a lock is asked for. */
static void test_a_lock_of_another_user(void **state)
{
    (void)state;
    struct rig rig = {.world = world_begin("")};
    FILE *log = fopen(rig.world.log, "w");
    fprintf(log, "1 set 0 1005 1005\n1 set 1 1005 1005\n");
    fclose(log);
    open_clocks(&rig, "all");
    assert_ok(erg_clocks_lock(rig.clocks, 0, 1200, NULL, &rig.err), &rig.err);
    close_clocks(&rig);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    assert_int_equal(lock_of(&rig.world, 1), 1005); /* never asked for */
    world_end(&rig.world);
}

/* Of two that want to lock one GPU the second is refused, and the first one's lock stays. */
static void test_two_at_once(void **state)
{
    (void)state;
    struct rig rig = rig_begin("", "all");
    struct erg_clocks *second;
    assert_ok(erg_clocks_lock(rig.clocks, 0, 1200, NULL, &rig.err), &rig.err);
    assert_ok(erg_clocks_open(&second, rig.gpus, &rig.err), &rig.err);
    assert_fails(erg_clocks_lock(second, 0, 900, NULL, &rig.err), &rig.err,
                 "another run of ergon locks those of GPU 0");
    assert_int_equal(rig.err.status, ERG_NO_DEVICE);
    assert_int_equal(lock_of(&rig.world, 0), 1200);
    assert_ok(erg_clocks_lock(second, 1, 900, NULL, &rig.err), &rig.err);
    assert_fails(erg_clocks_lock(rig.clocks, 1, 1500, NULL, &rig.err), &rig.err,
                 "another run of ergon locks those of GPU 1");
    assert_int_equal(lock_of(&rig.world, 1), 900);
    struct erg_clocks *first = rig.clocks;
    assert_ok(erg_clocks_close(first, &rig.err), &rig.err);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    assert_int_equal(lock_of(&rig.world, 1), 900);
    assert_ok(erg_clocks_lock(second, 0, 900, NULL, &rig.err), &rig.err);
    rig.clocks = second;
    close_clocks(&rig);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    assert_int_equal(lock_of(&rig.world, 1), 0);
    world_end(&rig.world);
}

static void assert_private(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 077, 0);
}

/* Strangers can neither hold a claim nor redirect one. */
static void test_claims(void **state)
{
    (void)state;
    char folder[] = "/tmp/ergon-claims-XXXXXX", path[96], other[96];
    struct erg_error err = {0};
    int claim, second;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/claims", folder);
    assert_ok(erg_claim_take(path, "GPU-1", 0, 4711, &claim, &err), &err);
    assert_fails(erg_claim_take(path, "GPU-1", 3, 1, &second, &err), &err,
                 "another run of ergon locks those of GPU 3 (it is process 4711)");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    assert_ok(erg_claim_take(path, "GPU-2", 0, 1, &second, &err), &err);
    close(second);
    /* Whoever could open the file for reading could lock it, and with it the GPU's clocks. */
    snprintf(other, sizeof other, "%s/GPU-2", path);
    assert_private(path);
    assert_private(other);
    assert_int_equal(chmod(path, 0755) + chmod(other, 0644), 0); /* as they once were made */
    assert_ok(erg_claim_take(path, "GPU-2", 0, 1, &second, &err), &err);
    close(second);
    assert_private(other); /* the folder may be looked into: a daemon's socket can lie there */
    close(claim);
    assert_ok(erg_claim_take(path, "GPU-1", 0, 12, &claim, &err), &err); /* given up with its end */
    close(claim);
    /* A name is no path. */
    assert_ok(erg_claim_take(path, "../x/y", 0, 1, &claim, &err), &err);
    close(claim);
    snprintf(other, sizeof other, "%s/___x_y", path);
    assert_int_equal(access(other, F_OK), 0);
    /* A link in the place of a lock file, or a file with a second name. */
    snprintf(other, sizeof other, "%s/GPU-3", path);
    assert_int_equal(symlink("/etc/passwd", other), 0);
    assert_fails(erg_claim_take(path, "GPU-3", 0, 1, &claim, &err), &err, "Too many levels");
    unlink(other);
    char first[96];
    snprintf(first, sizeof first, "%s/GPU-1", path);
    assert_int_equal(link(first, other), 0);
    assert_fails(erg_claim_take(path, "GPU-3", 0, 1, &claim, &err), &err, "not a plain file");
    /* A folder that others may write to, that belongs to them, or that is a link. */
    assert_int_equal(chmod(path, 0777), 0);
    assert_fails(erg_claim_take(path, "GPU-1", 0, 1, &claim, &err), &err, "others may write to it");
    assert_int_equal(chmod(path, 0755), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_fails(erg_claim_take(path, "GPU-1", 0, 1, &claim, &err), &err,
                     "belongs to another user");
    }
    snprintf(other, sizeof other, "%s/link", folder);
    assert_int_equal(symlink(path, other), 0);
    assert_fails(erg_claim_take(other, "GPU-1", 0, 1, &claim, &err), &err, "or is a link");
    snprintf(other, sizeof other, "rm -r '%s'", folder);
    assert_int_equal(system(other), 0);
}

/* ---- the guardian in trouble ---- */

static void test_no_guardian(void **state)
{
    (void)state;
    struct world world = world_begin("");
    struct erg_error err = {0};
    struct erg_gpus *gpus;
    struct erg_clocks *clocks;
    assert_ok(erg_gpus_open(&gpus, "all", &err), &err);
    setenv("ERGON_GUARDIAN", "/nowhere/ergon-guardian", 1);
    assert_fails(erg_clocks_open(&clocks, gpus, &err), &err,
                 "'/nowhere/ergon-guardian' cannot be run (No such file or directory)");
    setenv("ERGON_GUARDIAN", "/bin/true", 1);
    assert_fails(erg_clocks_open(&clocks, gpus, &err), &err, "its process has ended");
    unsetenv("ERGON_GUARDIAN");
    setenv("ERGON_FAKE_NVML", "/nowhere/script", 1); /* this process has read its own already */
    assert_fails(erg_clocks_open(&clocks, gpus, &err), &err, "the driver does not answer");
    erg_gpus_close(gpus);
    world_end(&world);
}

static void test_no_lock_without_a_guardian(void **state)
{
    (void)state;
    struct rig rig = rig_begin("", "all");
    assert_ok(erg_clocks_lock(rig.clocks, 0, 1200, NULL, &rig.err), &rig.err);
    FILE *log = fopen(rig.world.log, "r");
    long guardian = 0;
    assert_int_equal(fscanf(log, "%ld", &guardian),
                     1); /* who unlocks a GPU before its first lock */
    fclose(log);
    assert_int_not_equal(guardian, getpid());
    assert_int_equal(kill((pid_t)guardian, SIGKILL), 0);
    assert_fails(erg_clocks_lock(rig.clocks, 0, 900, NULL, &rig.err), &rig.err,
                 "its process has ended");
    assert_fails(erg_clocks_lock(rig.clocks, 1, 900, NULL, &rig.err), &rig.err,
                 "its process has ended");
    /* The owner notices, and leaves nothing locked that nobody would unlock. */
    for (int i = 0; i < 2000 && lock_of(&rig.world, 0) != 0; i++)
        pause_s(0.01);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    assert_int_equal(latest_of(&rig.world, 0).process, getpid());
    assert_int_equal(latest_of(&rig.world, 1).line, 0);
    close_clocks(&rig);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    world_end(&rig.world);
}

/* The reset fails in this process as long as it lives, and in the guardian for a second. */
static void test_a_reset_that_fails_is_tried_again(void **state)
{
    (void)state;
    char mine[96], all[96], task[64];
    struct rig rig = rig_begin("gpu 0 fail ResetGpuLockedClocks 999 ./mine\n"
                               "gpu 0 fail ResetGpuLockedClocks 999 ./all\n",
                               "all");
    snprintf(mine, sizeof mine, "%s/mine", rig.world.folder);
    snprintf(all, sizeof all, "%s/all", rig.world.folder);
    snprintf(task, sizeof task, "/proc/self/task/%ld", (long)getpid()); /* nobody else has it */
    assert_ok(erg_clocks_lock(rig.clocks, 0, 1200, NULL, &rig.err), &rig.err);
    assert_int_equal(close(creat(all, 0600)), 0);
    assert_int_equal(symlink(task, mine), 0);
    assert_fails(erg_clocks_reset(rig.clocks, 0, &rig.err), &rig.err,
                 "unlocking the SM clock of GPU 0");
    assert_int_equal(lock_of(&rig.world, 0), 1200);
    pid_t child = fork();
    if (child == 0) {
        pause_s(1);
        _exit(unlink(all) != 0);
    }
    close_clocks(&rig);
    int status = -1;
    assert_true(waitpid(child, &status, 0) == child && status == 0);
    assert_int_equal(unlink(mine), 0);
    assert_int_equal(lock_of(&rig.world, 0), 0);
    assert_int_not_equal(latest_of(&rig.world, 0).process, getpid());
    world_end(&rig.world);
}

static void test_a_child_closes_without_unlocking(void **state)
{
    (void)state;
    struct rig rig = rig_begin("", "all");
    assert_ok(erg_clocks_lock(rig.clocks, 0, 1200, NULL, &rig.err), &rig.err);
    pid_t child = fork();
    if (child == 0)
        _exit(erg_clocks_close(rig.clocks, NULL));
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(lock_of(&rig.world, 0), 1200);
    assert_ok(erg_clocks_lock(rig.clocks, 1, 900, NULL, &rig.err),
              &rig.err); /* the guardian is still there */
    close_clocks(&rig);
    assert_int_equal(lock_of(&rig.world, 1), 0);
    world_end(&rig.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_supported_clocks),
        cmocka_unit_test(test_lock_and_reset),
        cmocka_unit_test(test_two_gpus),
        cmocka_unit_test(test_a_clock_the_gpu_does_not_have),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_an_old_driver),
        cmocka_unit_test(test_an_idle_gpu_is_left_to_the_caller),
        cmocka_unit_test(test_a_lock_of_another_user),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_no_guardian),
        cmocka_unit_test(test_no_lock_without_a_guardian),
        cmocka_unit_test(test_a_reset_that_fails_is_tried_again),
        cmocka_unit_test(test_a_child_closes_without_unlocking),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, NULL, NULL);
}
