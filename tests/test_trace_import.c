/* Logs of other clusters: small ones of our own in each published layout. */
#include "check.h"
#include "cluster/traces/import.h"
#include "cluster/traces/log_internal.h"

#define EXAMPLE ERGON_TEST_SOURCE_DIR "/examples/cluster"

static struct erg_fleet *fleet;

static int load_fleet(void **state)
{
    (void)state;
    struct erg_error err;
    return erg_fleet_load(&fleet, EXAMPLE "/cluster.yaml", &err);
}

static int free_fleet(void **state)
{
    (void)state;
    erg_fleet_free(fleet);
    return 0;
}

static int import(struct erg_trace_import *result, struct erg_trace_maker *maker, const char *log,
                  uint64_t seed, struct erg_error *err)
{
    struct erg_error bad;
    assert_ok(erg_trace_maker_init(maker, fleet, EXAMPLE "/profiles", &bad), &bad);
    return erg_trace_import_text(result, maker, "log", log, strlen(log), seed, err);
}

/* Seconds that a job runs on what it asks for: between those of its iterations and one more. */
static void assert_runs(const struct erg_trace_maker *maker, size_t index, double seconds)
{
    const struct erg_trace_job *job = &maker->trace->jobs[index];
    double iteration_s = erg_trace_maker_iteration(maker, job->workload, job->type, job->gpus);
    if (!(job->iterations * iteration_s <= seconds * (1 + 1e-12) &&
          (job->iterations + 1) * iteration_s > seconds))
        fail_msg("%s does %g iterations of %g s in %g s", job->id, job->iterations, iteration_s,
                 seconds);
}

static void test_times(void **state)
{
    (void)state;
    double seconds;
    assert_true(erg_log_time("1970-01-01 00:00:00", &seconds) && seconds == 0);
    assert_true(erg_log_time("2000-02-29 12:00:00", &seconds) && seconds == 951825600);
    assert_true(erg_log_time("2017-10-07 01:12:09", &seconds) && seconds == 1507338729);
    assert_true(erg_log_time("2024-12-31 23:59:59", &seconds) && seconds == 1735689599);
    assert_false(erg_log_time("2017-13-07 01:12:09", &seconds));
    assert_false(erg_log_time("2017-10-07 01:12", &seconds));
    assert_false(erg_log_time("2017-02-29 01:12:09", &seconds));
    assert_true(erg_log_time("2017-10-07T01:12:09.5Z", &seconds) && seconds == 1507338729.5);
    assert_true(erg_log_time("2017-10-07 01:12:09+08:00", &seconds) && seconds == 1507309929);
    assert_true(erg_log_time("2017-10-07 01:12:09 -0730", &seconds) && seconds == 1507365729);
    assert_false(erg_log_time("2017-10-07 01:12:09+8", &seconds));
    assert_false(erg_log_time("2017-10-07 01:12:09.", &seconds));
    assert_false(erg_log_time("2017-10-07 01:12:09+15:00", &seconds));
    assert_false(erg_log_time("2017-+1-07 01:12:09", &seconds));
    assert_false(erg_log_time("2017-10-07 -0:12:09", &seconds));
    assert_false(erg_log_time("2017-10-07  1:12:09", &seconds));
    assert_false(erg_log_time("+017-10-07 01:12:09", &seconds));
}

static double pacific(const char *text, double least_s)
{
    double seconds;
    assert_true(erg_log_time_pacific(text, least_s, &seconds));
    return seconds;
}

/* Summer time from the second Sunday of March to the first of November. */
static void test_clock_changes(void **state)
{
    (void)state;
    double midnight_s = pacific("2017-11-05 00:00:00", 0);
    assert_near(midnight_s, 1509865200, 0); /* 07:00 in Greenwich */
    assert_near(pacific("2017-11-05 04:00:00", 0) - midnight_s, 5 * 3600, 0);
    assert_near(pacific("2017-11-05 01:30:00", 0) - midnight_s, 5400, 0);
    assert_near(pacific("2017-11-05 01:30:00", midnight_s + 5401) - midnight_s, 9000, 0);
    assert_near(pacific("2017-11-05 02:00:00", 0) - midnight_s, 3 * 3600, 0);
    midnight_s = pacific("2018-03-11 00:00:00", 0);
    assert_near(pacific("2018-03-11 04:00:00", 0) - midnight_s, 3 * 3600, 0);
    assert_near(pacific("2018-03-11 04:00:00Z", 0) - midnight_s, -4 * 3600, 0);
}

#define HELIOS                                                                                     \
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"      \
    "queue\n"

static void test_helios(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_trace_import result;
    struct erg_error err;
    assert_ok(import(&result, &maker,
                     HELIOS "7,u1,vision,8,64,1,COMPLETED,2020-04-01 00:10:00,x,y,3600,5\n"
                            "8,u2,speech,0,64,1,COMPLETED,2020-04-01 00:00:00,x,y,3600,5\n"
                            "9,u2,speech,1,6,1,FAILED,2020-04-01 00:05:00,x,y,900,5\n"
                            "10,u2,vision,24,6,3,CANCELLED,2020-04-01 00:10:00,x,y,7200,5\n"
                            "11,u2,vision,2,6,1,CANCELLED,2020-04-01 00:11:00,x,y,0,5\n",
                     1, &err),
              &err);
    const struct erg_trace_job *jobs = maker.trace->jobs;
    assert_string_equal(result.layout, "Helios");
    assert_int_equal(result.jobs, 3);
    assert_int_equal(result.without_gpus, 1);
    assert_int_equal(result.never_ran, 1);
    assert_int_equal(result.given_model, 3);
    assert_int_equal(result.given_type, 3);
    assert_int_equal(result.resized, 1);
    assert_string_equal(jobs[0].id, "9");
    assert_near(jobs[0].submit_s, 0, 0);
    assert_runs(&maker, 0, 900);
    assert_string_equal(jobs[1].id, "7");
    assert_near(jobs[1].submit_s, 300, 0);
    assert_int_equal(jobs[1].gpus, 8);
    assert_runs(&maker, 1, 3600);
    assert_string_equal(maker.trace->tenants[jobs[1].tenant], "vision");
    assert_int_equal(jobs[2].gpus, 16);
    assert_runs(&maker, 2, 7200);
    erg_trace_maker_release(&maker);
}

static void test_pai(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_trace_import result;
    struct erg_error err;
    assert_ok(import(&result, &maker,
                     "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,"
                     "plan_gpu,gpu_type\n"
                     "b,worker,2,Terminated,1000,4000,600,29,50,MISC\n"
                     "a,ps,1,Terminated,500,900,600,29,,\n"
                     "b,chief,1,Terminated,900,3000,600,29,100,MISC\n"
                     "c,worker,1,Running,900,,600,29,100,T4\n"
                     "d,worker,1,Failed,2000,2600,600,29,25,a100-sxm4-80gb\n",
                     1, &err),
              &err);
    const struct erg_trace_job *jobs = maker.trace->jobs;
    assert_string_equal(result.layout, "PAI");
    assert_int_equal(result.jobs, 2);
    assert_int_equal(result.without_gpus, 1); /* job a, of which only the server is there */
    assert_int_equal(result.never_ran, 0);
    assert_int_equal(result.still_ran, 1);
    assert_string_equal(jobs[0].id, "b");
    assert_int_equal(jobs[0].gpus, 2);
    assert_runs(&maker, 0, 3100);
    assert_string_equal(jobs[1].id, "d");
    assert_near(jobs[1].submit_s, 1100, 0);
    assert_int_equal(jobs[1].gpus, 1);
    assert_int_equal(jobs[1].type, 1);
    assert_runs(&maker, 1, 600);
    erg_trace_maker_release(&maker);
}

static void test_philly(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_trace_import result;
    struct erg_error err;
    assert_ok(
        import(
            &result, &maker,
            "\xef\xbb\xbf[{\"status\": \"Pass\", \"vc\": \"v1\", \"jobid\": \"two\", \"user\": "
            "\"u\",\n"
            "  \"submitted_time\": \"2017-10-07 01:00:00\", \"attempts\": [\n"
            "   {\"start_time\": \"2017-10-07 01:10:00\", \"end_time\": \"2017-10-07 01:20:00\",\n"
            "    \"detail\": [{\"ip\": \"m1\", \"gpus\": [\"gpu0\", \"gpu1\"]}]},\n"
            "   {\"start_time\": \"2017-10-07 02:00:00\", \"end_time\": \"2017-10-07 03:00:00\",\n"
            "    \"detail\": [{\"ip\": \"m1\", \"gpus\": [\"gpu0\", \"gpu1\"]},\n"
            "               {\"ip\": \"m2\", \"gpus\": [\"gpu3\", \"gpu4\"]}]},\n"
            "   {\"start_time\": null, \"end_time\": \"None\", \"detail\": []}]},\n"
            " {\"status\": \"Killed\", \"vc\": \"v2\", \"jobid\": \"none\", \"user\": \"u\",\n"
            "  \"submitted_time\": \"2017-10-07 00:00:00\", \"attempts\": []},\n"
            " {\"status\": \"Killed\", \"vc\": \"v2\", \"jobid\": \"one\", \"user\": \"u\",\n"
            "  \"submitted_time\": \"2017-10-07 00:30:00\", \"attempts\": [\n"
            "   {\"start_time\": \"2017-10-07 01:10:00\", \"end_time\": \"2017-10-07 01:20:00\",\n"
            "    \"detail\": [{\"ip\": \"m1\", \"gpus\": [\"gpu0\"]}]}]}]\n",
            1, &err),
        &err);
    const struct erg_trace_job *jobs = maker.trace->jobs;
    assert_string_equal(result.layout, "Philly");
    assert_int_equal(result.jobs, 2);
    assert_int_equal(result.without_gpus, 1);
    assert_string_equal(jobs[0].id, "one");
    assert_runs(&maker, 0, 600);
    assert_near(jobs[1].submit_s, 1800, 0);
    assert_int_equal(jobs[1].gpus, 4);
    assert_runs(&maker, 1, 4200);
    assert_string_equal(maker.trace->tenants[jobs[1].tenant], "v1");
    erg_trace_maker_release(&maker);
}

/* Run times of applications without one are drawn within their class: 10 to 100 GPU-hours. */
static void test_pollux(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_trace_import result;
    struct erg_error err;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        assert_ok(import(&result, &maker,
                         "name,time,application,num_replicas,batch_size\n"
                         "yolov3-0,107,yolov3,4,64\n",
                         seed, &err),
                  &err);
        const struct erg_trace_job *job = &maker.trace->jobs[0];
        double iteration_s = erg_trace_maker_iteration(&maker, job->workload, job->type, 4);
        assert_int_equal(job->gpus, 4);
        assert_true((job->iterations + 1) * iteration_s > 2.5 * 3600);
        assert_true(job->iterations * iteration_s < 25 * 3600);
        erg_trace_maker_release(&maker);
    }
    assert_ok(import(&result, &maker,
                     "name,time,application,num_replicas,batch_size,duration\n"
                     "a,107,LLAMA-3.2-3B,2,64,5000\n",
                     1, &err),
              &err);
    assert_string_equal(result.layout, "Pollux");
    assert_int_equal(result.given_model, 0);
    assert_string_equal(maker.trace->workloads[maker.trace->jobs[0].workload].size, "3.21B");
    assert_runs(&maker, 0, 5000);
    erg_trace_maker_release(&maker);
}

static void test_arena(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_trace_import result;
    struct erg_error err;
    assert_ok(import(&result, &maker,
                     "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,"
                     "gpu_type\n"
                     "x,5000,1234,Llama-3.2-3B__3.21B,9000.5,128,4,A100-SXM4-40GB\n"
                     "y,4000,10,Llama-3.2-3B__3.21B,,128,1,H800-SXM-80GB\n",
                     1, &err),
              &err);
    const struct erg_trace_job *job = &maker.trace->jobs[1];
    assert_string_equal(result.layout, "Arena");
    assert_int_equal(result.given_model + result.given_type + result.resized, 0);
    assert_string_equal(job->id, "x");
    assert_near(job->iterations, 1234, 0);
    assert_near(job->submit_s, 1000, 0);
    assert_near(job->deadline_s, 5000.5, 0);
    assert_int_equal(job->type, 2);
    assert_near(maker.trace->jobs[0].iterations, 10, 0);
    assert_true(isinf(maker.trace->jobs[0].deadline_s));
    erg_trace_maker_release(&maker);
}

/* Types by the number of their GPUs (32, 48 and 48), models that can run alike; a job's own draw
 * does not depend on the others. */
static void test_draws(void **state)
{
    (void)state;
    enum { JOBS = 3000 };
    struct erg_text log = {0};
    struct erg_trace_maker maker, alone;
    struct erg_trace_import result;
    struct erg_error err;
    int types[3] = {0}, models[5] = {0};
    erg_text_add(&log, HELIOS);
    for (int i = 0; i < JOBS; i++)
        erg_text_printf(&log, "%d,u,v,4,6,1,DONE,%d,x,y,90000,0\n", i, 10 * i);
    assert_ok(import(&result, &maker, log.data, 4, &err), &err);
    assert_int_equal(maker.trace->workloads_count, 5);
    for (int i = 0; i < JOBS; i++) {
        types[maker.trace->jobs[i].type]++;
        models[maker.trace->jobs[i].workload]++;
        assert_runs(&maker, (size_t)i, 90000);
    }
    for (int t = 0; t < 3; t++) {
        double share = t == 0 ? 0.25 : 0.375;
        assert_near((double)types[t] / JOBS, share, 5 * sqrt(share * (1 - share) / JOBS));
    }
    for (int m = 0; m < 5; m++) /* four of them run on 4 GPUs */
        assert_near((double)models[m] / JOBS,
                    strcmp(maker.trace->workloads[m].family, "llama-65b") ? 0.25 : 0,
                    5 * sqrt(0.25 * 0.75 / JOBS));
    assert_ok(import(&result, &alone, HELIOS "77,u,v,4,6,1,DONE,0,x,y,90000,0\n", 4, &err), &err);
    assert_int_equal(alone.trace->jobs[0].type, maker.trace->jobs[77].type);
    assert_int_equal(alone.trace->jobs[0].workload, maker.trace->jobs[77].workload);
    erg_trace_maker_release(&alone);
    erg_trace_maker_release(&maker);
    erg_text_release(&log);
}

/* One bad row does not end an import: it is left out, and counted by what is wrong with it. */
static void test_bad_rows(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_trace_import result;
    struct erg_error err;
    assert_ok(import(&result, &maker,
                     HELIOS "1,u1,vcA,8,64,1,COMPLETED,2020-04-01 00:08:15,2020-04-01 00:08:20,"
                            "2020-04-01 01:08:20,3600,5\n"
                            "2,u1,vcA,8,64,1,CANCELLED,2020-04-01 00:10:00,,2020-04-01 00:11:00,,"
                            "60\n"
                            "3,u1,vcA,4,64,1,FAILED,2020-04-01 00:12:00,2020-04-01 00:13:00,"
                            "2020-04-01 00:12:59,-1,60\n"
                            "4,u1,vcA,4,64,1,FAILED,2020-04-01 00:12:00,2020-04-01 00:13:00,"
                            "2020-04-01 00:12:59,,60\n"
                            "5,u1,vcA,4,64,1,RUNNING,2020-04-01 00:12:00,2020-04-01 00:13:00,,,60\n"
                            "6,u1,vcA,4,64,1,x,2020-04-01 00:12:00,2020-04-01 00:13:00,,,60\n"
                            "7,u1,vcA,,64,1,x,2020-04-01 00:12:00,,,,60\n"
                            "8,u1,vcA,-2,64,1,x,2020-04-01 00:12:00,,,9,60\n"
                            "9,u1,vcA,2,64,1,x,yesterday,,,9,60\n"
                            ",u1,vcA,2,64,1,x,2020-04-01 00:12:00,,,9,60\n"
                            "1,u1,vcA,2,64,1,x,2020-04-01 00:12:00,,,9,60\n"
                            "11,u1,vcA,2,64,1,x,2020-04-01 00:12:00,2020-04-01 00:12:00,"
                            "2020-04-01 00:22:00,,60\n"
                            "12,u1,vcA,2,64\n"
                            "13,u1,\"vc\"A,2,64,1,x,2020-04-01 00:12:00,,,9,60\n"
                            "14,u1,\"vcA,2,64,1,x,2020-04-01 00:12:00,,,9,60\n"
                            "15,u1,vcA,2,64,1,x,2020-04-01 00:12:00,,,900,60\n"
                            "17,u1,vcA,2,64,1,x,2020-04-01 00:12:00,2020-04-01 00:13:00,"
                            "2020-04-01 00:12:00,60,60\n"
                            "18,u1,vcA,2,64,1,x,2020-04-01 00:08:15.25,,,900,60\n"
                            "16,u1,vcA,2,64,1,x,2020-04-01 00:",
                     1, &err),
              &err);
    assert_int_equal(result.jobs, 4);
    assert_int_equal(result.without_gpus, 1);
    assert_int_equal(result.never_ran, 1);
    assert_int_equal(result.still_ran, 2);
    /* 3, 4, 8, 9, the nameless, the second 1, 12 to 14, 16, 17 */
    assert_int_equal(result.wrong, 11);
    assert_non_null(strstr(result.first_wrong.message, "log:14: "));
    assert_string_equal(maker.trace->jobs[0].id, "1");
    assert_runs(&maker, 0, 3600);
    assert_string_equal(maker.trace->jobs[1].id, "18");
    assert_near(maker.trace->jobs[1].submit_s, 0.25, 0);
    assert_string_equal(maker.trace->jobs[2].id, "11");
    assert_runs(&maker, 2, 600);
    assert_runs(&maker, 3, 900);
    erg_trace_maker_release(&maker);
}

/* What is wrong with a task or an attempt takes that, and not its job. */
static void test_bad_tasks(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_trace_import result;
    struct erg_error err;
    assert_ok(import(&result, &maker,
                     "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,"
                     "plan_gpu,gpu_type\n"
                     "a1,worker,4,Terminated,1536405.0,1540005.0,600.0,29.3,100.0,V100\n"
                     "a1,ps,2,Terminated,1536400.0,1540000.0,600.0,29.3,,MISC\n"
                     "a1,evaluator,1,Failed,1536500.0,1536400.0,600.0,29.3,50.0,V100\n"
                     "b1,tensorflow,1,Running,1536405.0,,600.0,29.3,100.0,P100\n"
                     "b1,ps,1,Terminated,1536405.0,1536505,600.0,29.3,100.0,P100\n"
                     "c1,PyTorchWorker,1,Terminated,1536405.0,1536405.0,600.0,29.3,25.0,T4\n"
                     "d1,worker,-1,Terminated,1536405.0,1536505.0,600.0,29.3,25.0,T4\n",
                     1, &err),
              &err);
    assert_int_equal(result.jobs, 1);
    assert_int_equal(result.never_ran, 1);
    assert_int_equal(result.still_ran, 1);
    assert_int_equal(result.wrong, 1);
    assert_int_equal(result.with_wrong_part, 1);
    assert_int_equal(maker.trace->jobs[0].gpus, 4);
    assert_runs(&maker, 0, 3600);
    erg_trace_maker_release(&maker);
}

#define ENTRY(id, attempts)                                                                        \
    "{\"jobid\": \"" id "\", \"vc\": \"v\", \"submitted_time\": \"2017-11-05 00:00:00\", "         \
    "\"attempts\": [" attempts "]}"
#define ATTEMPT(start, end)                                                                        \
    "{\"start_time\": " start ", \"end_time\": " end ", \"detail\": [{\"gpus\": [\"gpu0\"]}]}"
#define DAY(time) "\"2017-11-06 " time "\""

static void test_bad_attempts(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_trace_import result;
    struct erg_error err;
    static const char log[] =
        "[" ENTRY("long", ATTEMPT("\"2017-11-05 00:00:00\"", "\"2017-11-05 04:00:00\"")) /* 5 h */
        ", " ENTRY(
            "back",
            ATTEMPT("\"2017-11-05 01:59:30\"",
                    "\"2017-11-05 01:05:00\"")) ", " ENTRY("part",
                                                           ATTEMPT(DAY("02:00:00"), DAY("01:00:00")) ", " ATTEMPT(DAY("02:00:00"), "null") ", " ATTEMPT(
                                                               DAY("03:00:00"),
                                                               DAY("03:30:00"))) ", " ENTRY("runs",
                                                                                            ATTEMPT(DAY("00:00:00"), DAY("01:00:00")) ", " ATTEMPT(
                                                                                                DAY("02:00:00"),
                                                                                                "nu"
                                                                                                "l"
                                                                                                "l")) ", " ENTRY("never",
                                                                                                                 ATTEMPT(
                                                                                                                     "null",
                                                                                                                     "null")) ", " ENTRY("wrong",
                                                                                                                                         ATTEMPT(
                                                                                                                                             DAY("02:00:00"),
                                                                                                                                             DAY("01:00:00"))) ", 7, {\"vc\": \"v\"}]";
    assert_ok(import(&result, &maker, log, 1, &err), &err);
    assert_int_equal(result.jobs, 3);
    assert_int_equal(result.still_ran, 1);
    assert_int_equal(result.never_ran, 1);
    assert_int_equal(result.wrong, 3);
    assert_int_equal(result.with_wrong_part, 1);
    assert_non_null(strstr(result.first_wrong.message, "entry 3"));
    assert_runs(&maker, 0, 5 * 3600);
    assert_runs(&maker, 1, 330);
    assert_runs(&maker, 2, 1800);
    erg_trace_maker_release(&maker);
}

/* Helios' columns without vc, times with a zone. */
static void test_acme(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_trace_import result;
    struct erg_error err;
    assert_ok(import(&result, &maker,
                     "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,"
                     "end_time,duration,queue,gpu_time\n"
                     "dlc1,u1,1.0,8.0,64.0,Pretrain,COMPLETED,2023-03-01 08:00:10+08:00,"
                     "2023-03-01 08:00:20+08:00,2023-03-01 09:00:20+08:00,3600.0,10.0,28800.0\n"
                     "dlc2,u2,1.0,1.0,8.0,Other,FAILED,2023-03-01 00:00:00+00:00,,,,,\n"
                     "dlc3,u2,1.0,1.0,8.0,Other,FAILED,2023-03-01 00:00:00+00:00,"
                     "2023-03-01 00:00:00Z,2023-03-01 09:00:00+08:00,,,\n",
                     1, &err),
              &err);
    assert_string_equal(result.layout, "Acme");
    assert_int_equal(result.jobs, 2);
    assert_int_equal(result.never_ran, 1);
    assert_string_equal(maker.trace->jobs[1].id, "dlc1");
    assert_near(maker.trace->jobs[1].submit_s, 10, 0);
    assert_string_equal(maker.trace->tenants[maker.trace->jobs[1].tenant], "u1");
    assert_runs(&maker, 0, 3600);
    assert_runs(&maker, 1, 3600);
    erg_trace_maker_release(&maker);
}

static void assert_refused(const char *log, const char *part)
{
    struct erg_trace_maker maker;
    struct erg_trace_import result;
    struct erg_error err;
    assert_fails(import(&result, &maker, log, 1, &err), &err, part);
    erg_trace_maker_release(&maker);
}

static void test_refusals(void **state)
{
    (void)state;
    assert_refused("a,b\n1,2\n", "log: the columns match no supported log");
    assert_refused(HELIOS, "no job in it asked for GPUs");
    assert_refused(HELIOS "7,u,v,8,6,1,DONE,yesterday,x,y,3600,5\n",
                   "log:2: column 'submit_time': expected a time such as");
    assert_refused(HELIOS "7,u,v,8,6,1,DONE,5,x,y,-1,5\n", "log:2: column 'duration'");
    assert_refused("name,time,application,num_replicas,batch_size\na,1,gpt,4,64\n",
                   "log:2: the duration of 'gpt' is unknown");
    assert_refused("job_id,submission_time,num_iteration,model_name,batch_size,num_gpu,gpu_type\n"
                   "x,5000,1234,bert__1B,128,4,a100\n",
                   "log:2: the profiles in");
    assert_refused("job_id,submission_time,num_iteration,model_name,batch_size,num_gpu,gpu_type\n"
                   "x,5000,1234,bert,128,4,a100\n",
                   "expected FAMILY__SIZE");
    assert_refused("{\"a\": 1}", "expected an array of jobs");
    assert_refused("[{\"vc\": \"v\", \"attempts\": []}]", "log: entry 1");
    assert_refused("[{\"jobid\": \"j\", \"vc\": \"v\", \"submitted_time\": \"now\", \"attempts\": "
                   "[{\"start_time\": \"2017-10-07 01:10:00\", \"end_time\": "
                   "\"2017-10-07 01:20:00\", \"detail\": [{\"gpus\": [\"gpu0\"]}]}]}]",
                   "log: entry 1: key 'submitted_time': expected a time");
    assert_refused("[{\"jobid\": \"j\", \"vc\": \"v\", \"attempts\": [{\"start_time\": "
                   "\"2017-10-07 01:30:00\", \"end_time\": \"2017-10-07 01:20:00\"}]}]",
                   "no time before the start");
    struct erg_job_trace *trace;
    struct erg_error err;
    assert_fails(
        erg_job_trace_parse(&trace, "log", HELIOS "7,u,v,8,6,1,DONE,5,x,y,9,5\n",
                            sizeof HELIOS "7,u,v,8,6,1,DONE,5,x,y,9,5\n" - 1, fleet, &err),
        &err, "a log in the format of Helios is not a trace; \"ergon import trace\" converts it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),        cmocka_unit_test(test_helios),
        cmocka_unit_test(test_pai),          cmocka_unit_test(test_philly),
        cmocka_unit_test(test_pollux),       cmocka_unit_test(test_arena),
        cmocka_unit_test(test_draws),        cmocka_unit_test(test_clock_changes),
        cmocka_unit_test(test_bad_rows),     cmocka_unit_test(test_bad_tasks),
        cmocka_unit_test(test_bad_attempts), cmocka_unit_test(test_acme),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, load_fleet, free_fleet);
}
