/* launch/: which rank a process is, by the variables of ergon, torchrun, Slurm and Kubeflow. */
#include "check.h"
#include "launch/launch.h"
#include "launcher_variables.h"

static void check_environment(const char *text, int rank, int world, int local, const char *host,
                              int port, const char *job)
{
    struct erg_launch_environment env;
    struct erg_error err = {0};
    set_environment(text);
    assert_ok(erg_launch_environment_read(&env, &err), &err);
    assert_int_equal(env.rank, rank);
    assert_int_equal(env.world, world);
    assert_int_equal(env.local_rank, local);
    assert_string_equal(env.host, host);
    assert_int_equal(env.port, port);
    assert_string_equal(env.job, job);
}

static void environments_of_all_launchers_are_understood(void **state)
{
    (void)state;
    check_environment("", 0, 1, 0, "127.0.0.1", 0, "");
    check_environment("ERGON_RANK=3 ERGON_WORLD_SIZE=4 ERGON_LOCAL_RANK=1 ERGON_HOST=::1 "
                      "ERGON_PORT=4000 ERGON_JOB=x RANK=7 WORLD_SIZE=9",
                      3, 4, 1, "::1", 4000, "x");
    check_environment("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=n1 MASTER_PORT=29500", 5, 8, 1,
                      "n1", 29500, "torchrun ");
    check_environment("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=n1 MASTER_PORT=29500 "
                      "TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=j7",
                      5, 8, 1, "n1", 29501, "torchrun j7");
    check_environment("SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_JOB_ID=1000 "
                      "SLURM_STEP_NODELIST=gpu[017-020,33],cpu1",
                      2, 4, 0, "gpu017", 20000 + 16000 % 12000, "slurm 1000.0");
    check_environment("SLURM_PROCID=2 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 "
                      "SLURM_JOB_ID=1000 SLURM_STEP_ID=3 SLURM_STEP_NODELIST=r[1-2]n[5,7]x,a "
                      "ERGON_PORT=1234",
                      2, 4, 0, "r1n5x", 1234, "slurm 1000.3");
    check_environment("SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_JOB_ID=1000 "
                      "SLURM_STEP_NODELIST=r[1-2] ERGON_HOST=10.0.0.7",
                      2, 4, 0, "10.0.0.7", 20000 + 16000 % 12000, "slurm 1000.0");
    /* All on one machine: they meet at its loopback address. */
    check_environment("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n1 "
                      "MASTER_PORT=29500",
                      1, 2, 1, "127.0.0.1", 29500, "torchrun ");
    check_environment("RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n1 "
                      "MASTER_PORT=29500",
                      1, 4, 1, "n1", 29500, "torchrun ");
    check_environment("SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_LOCALID=2 SLURM_JOB_ID=1000 "
                      "SLURM_STEP_NODELIST=gpu017",
                      2, 4, 2, "127.0.0.1", 20000 + 16000 % 12000, "slurm 1000.0");
    /* Numbers of special steps have 32 bits, with a sign or without. */
    check_environment("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_JOB_ID=4294967293 "
                      "SLURM_STEP_ID=4294967290 SLURM_STEP_NODELIST=a,b",
                      1, 2, 0, "a", 20000 + (int)((4294967293ull * 16 + 4294967290ull) % 12000),
                      "slurm 4294967293.4294967290");
    check_environment("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_JOB_ID=5 "
                      "SLURM_STEP_ID=-6 SLURM_STEP_NODELIST=a,b",
                      1, 2, 0, "a", 20000 + (int)((5 * 16 + 4294967290ull) % 12000),
                      "slurm 5.4294967290");
    /* One rank meets nobody, whatever is missing. */
    check_environment("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_STEP_ID=x "
                      "SLURM_STEP_NODELIST=n1",
                      0, 1, 0, "127.0.0.1", 0, "");
    check_environment("RANK=0 WORLD_SIZE=1", 0, 1, 0, "127.0.0.1", 0, "");
    /* Kubeflow: one rank a machine. */
    check_environment("RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=23456", 1, 2, 0, "m", 23456,
                      "torchrun ");
    /* A batch script is not a step: it has a rank, but no list of the step's nodes. */
    check_environment("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_JOB_ID=1000", 0, 1, 0,
                      "127.0.0.1", 0, "");
    clear_environment();
}

static void inconsistent_environments_are_errors(void **state)
{
    (void)state;
    struct erg_launch_environment env;
    struct erg_error err = {0};
    set_environment("ERGON_RANK=0");
    assert_fails(erg_launch_environment_read(&env, &err), &err, "ERGON_WORLD_SIZE is not set");
    set_environment("ERGON_RANK=4 ERGON_WORLD_SIZE=4 ERGON_LOCAL_RANK=0");
    assert_fails(erg_launch_environment_read(&env, &err), &err, "ERGON_RANK is \"4\", expected");
    set_environment("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=n1 MASTER_PORT=0");
    assert_fails(erg_launch_environment_read(&env, &err), &err, "MASTER_PORT is \"0\"");
    set_environment("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_PORT=1");
    assert_fails(erg_launch_environment_read(&env, &err), &err, "MASTER_ADDR is not set");
    set_environment("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=1");
    assert_fails(erg_launch_environment_read(&env, &err), &err, "LOCAL_RANK is not set");
    set_environment("RANK=1");
    assert_fails(erg_launch_environment_read(&env, &err), &err, "WORLD_SIZE is not set");
    set_environment("WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=1");
    assert_fails(erg_launch_environment_read(&env, &err), &err, "RANK is not set");
    set_environment("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_JOB_ID=5 "
                    "SLURM_STEP_ID=4294967296 SLURM_STEP_NODELIST=a,b");
    assert_fails(erg_launch_environment_read(&env, &err), &err,
                 "SLURM_STEP_ID is \"4294967296\", expected a whole number of 32 bits");
    set_environment("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_JOB_ID=5 "
                    "SLURM_STEP_NODELIST=,a");
    assert_fails(erg_launch_environment_read(&env, &err), &err, "that begins with the name");
    set_environment("RANK=0 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=1 ERGON_JOB_SECRET=short");
    assert_fails(erg_launch_environment_read(&env, &err), &err, "ERGON_JOB_SECRET is too short");
    clear_environment();
}

/* Ranks know each other by the end of a long path. */
static void the_name_of_a_job_is_the_end_of_its_folder(void **state)
{
    (void)state;
    struct erg_error err;
    char path[200];
    memset(path, 'x', sizeof path);
    path[0] = '/';
    snprintf(path + 190, 10, "/end");
    struct erg_launch_environment env;
    set_environment("ERGON_RANK=0 ERGON_WORLD_SIZE=2 ERGON_LOCAL_RANK=0 ERGON_HOST=h "
                    "ERGON_PORT=4000");
    setenv("ERGON_JOB", path, 1);
    assert_ok(erg_launch_environment_read(&env, &err), &err);
    assert_int_equal(strlen(env.job), sizeof env.job - 1);
    assert_string_equal(env.job + strlen(env.job) - 4, "/end");
    clear_environment();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environments_of_all_launchers_are_understood),
        cmocka_unit_test(inconsistent_environments_are_errors),
        cmocka_unit_test(the_name_of_a_job_is_the_end_of_its_folder),
    };
    return cmocka_run_group_tests_name("launch environment", tests, NULL, NULL);
}
