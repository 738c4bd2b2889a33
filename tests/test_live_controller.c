/*
 * The controller of live jobs, pass by pass, on a resource manager in memory with a clock of the
 * test's: requests that cannot be used, nodes on which a job failed, what is forgotten, what is
 * adopted, and clocks that differ.
 */
#define _GNU_SOURCE

#include "cluster/live/controller_internal.h"
#include "cluster/policies/policies.h"
#include "io/file.h"
#include "live_world.h"

#include <sqlite3.h>

static struct {
    struct erg_live_file *file;
    struct erg_controller *controller;
    struct erg_text said;
} at;

static void say(void *context, const char *line)
{
    (void)context;
    erg_text_printf(&at.said, "%s\n", line);
}

static int times_said(const char *part)
{
    int times = 0;
    for (const char *found = at.said.data; found && (found = strstr(found, part)); found++)
        times++;
    return times;
}

static void begin_controller(void)
{
    struct erg_error err;
    struct erg_controller_setup setup = {.file = at.file,
                                         .engine = &world.base,
                                         .journal = in_folder("journal"),
                                         .policy = at.file->policy,
                                         .compress = 1,
                                         .say = say};
    assert_ok(erg_policy_find(&setup.policy, "fcfs", &err), &err);
    assert_ok(erg_controller_new(&at.controller, &setup, &err), &err);
}

static void begin(long nodes)
{
    world.at_s = 5000;
    at.file = open_world(nodes);
    begin_controller();
}

static void end(void)
{
    erg_controller_free(at.controller);
    close_world(at.file);
    erg_text_release(&at.said);
    memset(&at, 0, sizeof at);
    shell("rm -rf @/spool @/journal*");
}

/* A pass, so much later. */
static void pass(double later_s)
{
    struct erg_error err;
    double wait_s;
    world.at_s += later_s;
    assert_ok(erg_controller_pass(at.controller, &wait_s, &err), &err);
    assert_true(wait_s > 0 && wait_s < 1e6);
}

static void write_in_job(long job, const char *name, const char *text)
{
    char token[ERG_TOKEN_LENGTH + 1], path[100];
    token_of(token, job);
    snprintf(path, sizeof path, "spool/%s/%s", token, name);
    write_text(path, text);
}

static int node_of(long job)
{
    assert_int_equal(world.jobs[job].state, ERG_LIVE_RUNNING);
    return world.jobs[job].has.slices[0].node;
}

/* ---- requests that cannot be used ---- */

static void a_request_is_read_again_once_it_has_changed(void **state)
{
    (void)state;
    begin(1);
    submit_job(2);
    write_in_job(0, "request.json", "{\"name\": \"half");
    for (int i = 0; i < 5; i++)
        pass(2);
    assert_int_equal(times_said("job 1 is left alone"), 1);
    /* Another mistake is said, the same one in a file of another time is not. */
    write_in_job(0, "request.json", "{}");
    pass(2);
    assert_int_equal(times_said("job 1 is left alone"), 2);
    write_in_job(0, "request.json", "{}");
    pass(2);
    pass(70);
    assert_int_equal(times_said("job 1 is left alone"), 2);
    assert_int_equal(world.calls, 0);
    write_request(0, 2);
    pass(2);
    assert_int_equal(times_said("job 1 is now valid"), 1);
    pass(2);
    assert_int_equal(world.calls, 1);
    assert_int_equal(world.jobs[0].state, ERG_LIVE_RUNNING);
    end();
}

/* ---- idle nodes ---- */

static int nodes_off(void)
{
    int count = 0;
    for (long node = 0; node < world.nodes; node++)
        count += world.off[node];
    return count;
}

static void idle_nodes_are_switched_off(void **state)
{
    (void)state;
    world.saving = "power_saving: {after_s: 600, wake_s: 60}\n";
    begin(3);
    submit_job(8);
    pass(2);
    const int used = node_of(0);
    pass(590);
    assert_int_equal(nodes_off(), 0);
    pass(20);
    assert_int_equal(nodes_off(), 2);
    assert_false(world.off[used]);
    assert_int_equal(times_said(": sleeps, since no job needs it"), 2);
    pass(2);
    /* That of a job goes when it is over, and has been for as long. */
    report(0, "done", 1000);
    end_run(0, ERG_LIVE_COMPLETED);
    pass(2);
    pass(590);
    assert_int_equal(nodes_off(), 2);
    pass(20);
    assert_int_equal(nodes_off(), 3);
    assert_int_equal(times_said("sleep"), 3);
    /* The next job wakes one, and only that. */
    submit_job(8);
    for (int i = 0; i < 3; i++)
        pass(2);
    assert_false(world.off[node_of(1)]);
    assert_int_equal(nodes_off(), 2);
    end();
}

/* Without the right to, it is said once in ten minutes. */
static void nodes_that_may_not_sleep_stay_on(void **state)
{
    (void)state;
    world.saving = "power_saving: {after_s: 60, wake_s: 60}\n";
    world.keeps_on = true;
    begin(1);
    pass(2);
    for (int i = 0; i < 100; i++)
        pass(10);
    assert_int_equal(nodes_off(), 0);
    assert_int_equal(times_said("node h001 stays on: it may not"), 2);
    end();
}

/* ---- nodes on which a job failed ---- */

static void a_job_avoids_the_node_on_which_it_failed(void **state)
{
    (void)state;
    begin(3);
    submit_job(8);
    world.jobs[0].silent = true;
    pass(2);
    pass(2);
    const int first = node_of(0);
    end_run(0, ERG_LIVE_HELD);
    world.jobs[0].silent = false;
    pass(2);
    /* It waits 30 s before it is tried again, and the node is avoided for 120. */
    for (int i = 0; i < 18 && world.jobs[0].state != ERG_LIVE_RUNNING; i++)
        pass(2);
    assert_int_not_equal(node_of(0), first);
    pass(2);
    pass(2);
    assert_int_equal(world.calls, 2);
    end();
}

static void gpus_of_an_avoided_node_are_not_kept(void **state)
{
    (void)state;
    begin(1);
    submit_job(8);
    world.jobs[0].silent = true;
    pass(2);
    pass(2);
    assert_int_equal(node_of(0), 0);
    end_run(0, ERG_LIVE_HELD);
    world.jobs[0].silent = false;
    pass(2);
    pass(31); /* it may be tried again, and is on the only node there is */
    assert_int_equal(times_said("job 1 waits: it recently failed on node h001"), 1);
    submit_job(8);
    pass(2);
    pass(2);
    assert_int_equal(node_of(1), 0);
    pass(2);
    report(1, "done", 1000);
    end_run(1, ERG_LIVE_COMPLETED);
    /* Not avoided any more after 120 s. */
    for (int i = 0; i < 70 && world.jobs[0].state != ERG_LIVE_RUNNING; i++)
        pass(2);
    assert_int_equal(node_of(0), 0);
    end();
}

/* ---- what is forgotten ---- */

static long rows_of(const char *what)
{
    sqlite3 *journal;
    sqlite3_stmt *statement;
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", what);
    assert_int_equal(sqlite3_open(in_folder("journal"), &journal), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(journal, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    const long count = (long)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(journal);
    return count;
}

static size_t jobs_in_status(void)
{
    json_t *status = erg_controller_status(at.controller);
    const size_t count = json_array_size(json_object_get(status, "jobs"));
    json_decref(status);
    return count;
}

static void ended_jobs_are_dropped(void **state)
{
    (void)state;
    enum { DAY = 205 };
    begin(40);
    for (int i = 0; i < DAY; i++)
        submit_job(1);
    submit_job(8); /* which the manager forgets while it waits */
    world.jobs[DAY].state = ERG_LIVE_PENDING;
    pass(2);
    pass(2);
    assert_int_equal(world.calls, DAY);
    for (int i = 0; i < DAY; i++) {
        report(i, "done", 1000);
        end_run(i, ERG_LIVE_COMPLETED);
    }
    world.jobs[DAY].forgotten = true;
    pass(2);
    assert_int_equal(at.controller->count, DAY + 1);
    for (int i = 0; i < DAY; i++)
        world.jobs[i].forgotten = true;
    pass(610);
    assert_int_equal(at.controller->count, 200);
    assert_int_equal(jobs_in_status(), 200);
    /* The manager still shows one: it is known until that has forgotten it. */
    submit_job(1);
    pass(2);
    pass(2);
    assert_int_equal(world.jobs[DAY + 1].state, ERG_LIVE_RUNNING);
    pass(90000);
    assert_int_equal(at.controller->count, 1);
    assert_int_equal(jobs_in_status(), 1);
    assert_int_equal(erg_controller_find(at.controller, at.controller->records[0].token), 0);
    /* One that comes back is met anew, with the number that it has for the policy. */
    const size_t known = at.controller->scheduler->jobs_count;
    world.jobs[DAY].forgotten = false;
    world.jobs[DAY].state = ERG_LIVE_HELD;
    pass(2);
    pass(2);
    assert_int_equal(at.controller->count, 2);
    assert_int_equal(world.jobs[DAY].state, ERG_LIVE_RUNNING);
    assert_int_equal(at.controller->scheduler->jobs_count, known);
    /* What was written today is in the journal. */
    assert_int_equal(rows_of("entry WHERE kind = 'job'"), DAY + 2);
    end();
}

/* The rows of the scheduler are bounded, too: it begins anew with what the journal has, and jobs
 * that run go on. */
static void tables_do_not_grow_for_ever(void **state)
{
    (void)state;
    enum { FORGOTTEN = 520 };
    char *text, *path, token[ERG_TOKEN_LENGTH + 1], name[100];
    struct erg_error err;
    begin(1);
    submit_job(8);
    pass(2);
    pass(2);
    assert_int_equal(world.jobs[0].state, ERG_LIVE_RUNNING);
    token_of(token, 0);
    snprintf(name, sizeof name, "spool/%s/request.json", token);
    assert_ok(erg_file_read(in_folder(name), 0, &text, NULL, &err), &err);
    for (int i = 1; i <= FORGOTTEN; i++) {
        token_of(token, i);
        assert_ok(erg_job_folder_make(&path, in_folder("spool"), token, &err), &err);
        free(path);
        write_in_job(i, "request.json", text);
        world.jobs[i].state = ERG_LIVE_HELD;
    }
    free(text);
    world.count += FORGOTTEN;
    pass(2);
    assert_int_equal(at.controller->scheduler->jobs_count, FORGOTTEN + 1);
    for (int i = 1; i <= FORGOTTEN; i++) {
        world.jobs[i].state = ERG_LIVE_CANCELLED;
        world.jobs[i].forgotten = true;
    }
    pass(2);
    report(0, "training", 2);
    pass(90000); /* the last 200 are known for a day */
    report(0, "training", 3);
    pass(2);
    assert_int_equal(at.controller->count, 1);
    assert_int_equal(at.controller->scheduler->jobs_count, 1);
    assert_int_equal(at.controller->scheduler->jobs[0].state, ERG_JOB_RUNNING);
    assert_int_equal(world.jobs[0].state, ERG_LIVE_RUNNING);
    assert_int_equal(world.calls, 1);
    assert_true(times_said("job 1: place") == 1);
    end();
}

/* ---- what is adopted ---- */

static struct erg_live_plan plan_of(long job)
{
    struct erg_live_plan plan;
    struct erg_arena arena = {0};
    struct erg_error err;
    char token[ERG_TOKEN_LENGTH + 1], name[100];
    token_of(token, job);
    snprintf(name, sizeof name, "spool/%s", token);
    assert_ok(erg_job_folder_read_plan(&plan, in_folder(name), &arena, &err), &err);
    assert_non_null(plan.type);
    erg_arena_release(&arena);
    return plan;
}

/* Watts of a job by its plan file, beyond those of idle GPUs. */
static double planned_w(long job)
{
    const struct erg_live_plan plan = plan_of(job);
    return plan.nodes * plan.gpus_per_node * (plan.power_w - 70);
}

/* A job that does what its plan file says from now on, and says so. */
static void obey(long job)
{
    world.jobs[job].follows = plan_of(job).number;
    report(job, "training", 2);
}

/* A job that obeys late is counted as before until it says that it obeys, whatever else it says
 * meanwhile, and also by a controller that has lost its journal. */
static void power_is_reassigned_after_a_job_reports(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        begin(2);
        submit_job(8);
        pass(2);
        pass(2);
        const double most_w = planned_w(0);
        assert_true(most_w > 8 * 100);
        assert_false(plan_of(0).capped);
        erg_controller_free(at.controller);
        if (lost)
            shell("rm -f @/journal*");
        at.file->power_cap_w = 16 * 70 + 1.5 * most_w;
        submit_job(8);
        begin_controller();
        for (int i = 0; i < 30; i++) {
            pass(100);
            report(0, "training", 1);
            assert_int_equal(world.jobs[1].state, ERG_LIVE_HELD);
        }
        assert_in_range((long)planned_w(0), (long)(0.5 * most_w), (long)(0.8 * most_w));
        assert_true(plan_of(0).capped);
        world.jobs[0].follows = plan_of(0).number - 1; /* the one before */
        report(0, "training", 1);
        pass(2);
        assert_int_equal(world.jobs[1].state, ERG_LIVE_HELD);
        obey(0);
        pass(2);
        assert_int_equal(world.jobs[1].state, ERG_LIVE_RUNNING);
        assert_true(planned_w(0) + planned_w(1) <= 1.5 * most_w + 1);
        end();
    }
}

/* Two jobs share the cap when a controller begins anew, with its journal or without. One must
 * leave, since it has GPUs that no shape is: the other gets its power when it has left, though
 * nobody knew how much both drew. */
static void check_restart(double most_w, bool lost)
{
    begin(3);
    at.file->power_cap_w = 24 * 70 + 1.2 * most_w;
    erg_controller_free(at.controller);
    begin_controller();
    submit_job(8);
    submit_job(8);
    pass(2);
    pass(2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world.jobs[i].state, ERG_LIVE_RUNNING);
        obey(i);
    }
    assert_in_range((long)(planned_w(0) + planned_w(1)), (long)most_w, (long)(1.2 * most_w) + 1);
    struct world_job *uneven = &world.jobs[1];
    assert_int_equal(node_of(0), 0);
    world.drained = 2;
    take(1, true);
    uneven->has.count = 0;
    erg_placement_add(&uneven->has, 1, 0x1f);
    erg_placement_add(&uneven->has, 2, 7);
    take(1, false);
    uneven->stays = true;
    erg_controller_free(at.controller);
    if (lost)
        shell("rm -f @/journal*");
    begin_controller();
    for (int i = 0; i < 10; i++) {
        pass(10);
        for (int job = 0; job < 2; job++)
            obey(job);
        assert_true(planned_w(0) + planned_w(1) <= 1.2 * most_w + 1);
    }
    end_run(1, ERG_LIVE_HELD);
    const double before_w = planned_w(0);
    pass(10);
    pass(10);
    assert_true(planned_w(0) > before_w + 100);
    end();
}

static void a_restart_raises_no_power(void **state)
{
    (void)state;
    begin(3);
    submit_job(8);
    pass(2);
    pass(2);
    const double most_w = planned_w(0);
    end();
    for (int lost = 0; lost < 2; lost++)
        check_restart(most_w, lost);
}

/* ---- clocks of other hosts, and of yesterday ---- */

static double least_in_journal(const char *column, const char *table)
{
    sqlite3 *journal;
    sqlite3_stmt *statement;
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT min(%s) FROM %s", column, table);
    assert_int_equal(sqlite3_open(in_folder("journal"), &journal), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(journal, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    const double least = sqlite3_column_double(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(journal);
    return least;
}

/* Users and trainers whose clocks are ten minutes ahead, or behind: jobs run as ever. */
static void clocks_of_other_hosts_change_nothing(void **state)
{
    (void)state;
    static const double ahead_s[] = {600, -600};
    for (int k = 0; k < 2; k++) {
        begin(1);
        world.ahead_s = ahead_s[k];
        world.mono_s = k ? 0 : 1e9;
        submit_job(8);
        submit_job(8);
        pass(2);
        pass(2);
        assert_int_equal(node_of(0), 0);
        for (int i = 1; i <= 10; i++) { /* a clock that jumps */
            world.mono_s = i % 2 ? 5 : 1e9;
            report(0, "training", 10 * i);
            pass(10);
        }
        json_t *status = erg_controller_status(at.controller), *job;
        size_t i;
        json_array_foreach(json_object_get(status, "jobs"), i, job)
        {
            const double attained_s = json_number_value(json_object_get(job, "attained_gpu_s"));
            const json_t *ends = json_object_get(job, "ends_unix_s");
            assert_in_range((long)attained_s, 0, 8 * 110);
            if (i == 0) /* 900 iterations of 1.5 s are left */
                assert_near(json_number_value(ends) - erg_unix_s(), 1350, 60);
        }
        json_decref(status);
        report(0, "done", 1000);
        end_run(0, ERG_LIVE_COMPLETED);
        pass(2);
        pass(2);
        assert_int_equal(node_of(1), 0);
        assert_true(least_in_journal("seconds", "delay") >= 0);
        assert_true(least_in_journal("took_s", "restart") >= 0);
        assert_int_equal(rows_of("delay"), 3);
        end();
    }
}

static void set_back_journal(void)
{
    sqlite3 *journal;
    assert_int_equal(sqlite3_open(in_folder("journal"), &journal), SQLITE_OK);
    assert_int_equal(sqlite3_exec(journal,
                                  "UPDATE entry SET value = json_set(value, '$.released_s', "
                                  "json_extract(value, '$.released_s') + 3600) WHERE kind = 'job';"
                                  "UPDATE entry SET value = value + 3600 WHERE kind = 'clock'",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(journal);
}

/* A controller that begins an hour "before" its journal was written. */
static void a_repeated_hour_delays_no_job(void **state)
{
    (void)state;
    begin(1);
    submit_job(8);
    world.jobs[0].queued = true;
    pass(2);
    pass(2);
    assert_int_equal(world.jobs[0].state, ERG_LIVE_PENDING);
    erg_controller_free(at.controller);
    set_back_journal();
    begin_controller();
    double waited_s = 0;
    while (world.jobs[0].state == ERG_LIVE_PENDING && waited_s < 1000) {
        pass(2);
        waited_s += 2;
    }
    assert_in_range((long)waited_s, 50, 70);
    end();
}

/* ---- events ---- */

static void events_are_written_as_the_simulator_does(void **state)
{
    (void)state;
    begin(1);
    submit_job(8);
    submit_job(8);
    for (int i = 0; i < 3; i++)
        pass(2);
    report(0, "done", 1000);
    end_run(0, ERG_LIVE_COMPLETED);
    for (int i = 0; i < 3; i++)
        pass(2);
    end_run(1, ERG_LIVE_HELD); /* its node took it back */
    pass(2);
    const char *const expected[] = {
        "time_s,event,job_id,node,gpu_type,nodes,gpus_per_node,point,gpus\n",
        ",submit,0000000000000001,,,,,,\n",
        ",submit,0000000000000002,,,,,,\n",
        ",start,0000000000000001,,H800-SXM-80GB,1,8,0,0:11111111\n",
        ",end,0000000000000001,,H800-SXM-80GB,1,8,0,0:11111111\n",
        ",start,0000000000000002,,H800-SXM-80GB,1,8,0,0:11111111\n",
        ",evict,0000000000000002,,H800-SXM-80GB,1,8,0,0:11111111\n",
    };
    char *text;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("spool/.controller/events.csv"), 0, &text, NULL, &err), &err);
    const char *at_line = text;
    double before_s = 0;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const char *comma = strchr(at_line, ',');
        const size_t count = strcspn(at_line, "\n") + 1;
        const char *rest = i == 0 ? at_line : comma;
        assert_int_equal(strncmp(rest, expected[i], strlen(expected[i])), 0);
        if (i > 0)
            assert_true(strtod(at_line, NULL) >= before_s);
        before_s = i > 0 ? strtod(at_line, NULL) : 0;
        at_line += count;
    }
    assert_string_equal(at_line, "");
    free(text);
    /* Another controller begins with what is there. */
    erg_controller_free(at.controller);
    begin_controller();
    pass(2);
    assert_ok(erg_file_read(in_folder("spool/.controller/events.csv"), 0, &text, NULL, &err), &err);
    assert_non_null(strstr(text, ",submit,0000000000000002,"));
    assert_null(strstr(text, "0000000000000001"));
    free(text);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_read_again_once_it_has_changed),
        cmocka_unit_test(idle_nodes_are_switched_off),
        cmocka_unit_test(nodes_that_may_not_sleep_stay_on),
        cmocka_unit_test(a_job_avoids_the_node_on_which_it_failed),
        cmocka_unit_test(gpus_of_an_avoided_node_are_not_kept),
        cmocka_unit_test(ended_jobs_are_dropped),
        cmocka_unit_test(tables_do_not_grow_for_ever),
        cmocka_unit_test(power_is_reassigned_after_a_job_reports),
        cmocka_unit_test(a_restart_raises_no_power),
        cmocka_unit_test(clocks_of_other_hosts_change_nothing),
        cmocka_unit_test(a_repeated_hour_delays_no_job),
        cmocka_unit_test(events_are_written_as_the_simulator_does),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
