/*
 * The layout of a run whose job leaves it open: the fastest that fits into the room that there is,
 * as the engine takes it, to the byte.
 */
#include "train_job.h"

#include "device/host/host.h"
#include "train/run/run_layout.h"
#include "train/run/run_memory.h"

static struct erg_backend *backend;

static const char open_job[] = "model: model\n"
                               "cluster: {nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\n"
                               "sequence: 16\n"
                               "train:\n"
                               "  data: [{file: tokens.bin}]\n"
                               "  updates: 12\n"
                               "  batch: 16\n"
                               "  learning_rate: 0.01\n"
                               "  offload_least_bytes: 0\n";

static struct erg_job *parse(const char *keys, bool any_layout)
{
    const struct erg_job_overrides overrides = {.any_layout = any_layout};
    struct erg_text text = {0};
    struct erg_error err;
    struct erg_job *job;
    erg_text_printf(&text, "%s%s", keys, open_job);
    assert_ok(erg_job_parse(&job, in_folder("open.yaml"), text.data, text.count, &overrides, &err),
              &err);
    erg_text_release(&text);
    return job;
}

/* The job that is chosen for; *why, to be released. */
static struct erg_job *choose(const char *keys, int world, double room_bytes,
                              const struct erg_job *before, struct erg_text *why)
{
    struct erg_job *job = parse(keys, true), *chosen;
    struct erg_run_layout layout;
    struct erg_error err;
    const struct erg_run_layout_request request = {
        .job = job, .backend = backend, .world = world, .room_bytes = room_bytes, .before = before};
    assert_ok(erg_run_layout_choose(&layout, &request, &err), &err);
    assert_ok(erg_job_parse(&chosen, in_folder("run/job.yaml"), layout.job.data, layout.job.count,
                            NULL, &err),
              &err);
    *why = layout.why;
    layout.why = (struct erg_text){0};
    erg_run_layout_release(&layout);
    erg_job_free(job);
    return chosen;
}

static size_t bytes_of(const struct erg_job *job)
{
    const size_t bytes = erg_run_memory_of(job, backend, &job->layout);
    assert_true(bytes > 0);
    return bytes;
}

/* Less room means another layout, down to where nothing fits. */
static void it_fits_into_the_room(void **state)
{
    (void)state;
    struct erg_text why;
    struct erg_job *job = choose("", 1, 1e9, NULL, &why);
    size_t largest = bytes_of(job), smallest = largest, changes = 0;
    assert_int_equal(job->layout.microbatch, 16);
    assert_int_equal(job->layout.recompute, ERG_RECOMPUTE_NONE);
    assert_non_null(strstr(why.data, "1 microbatch of 16, recompute none: of "));
    erg_text_release(&why);
    erg_job_free(job);
    struct erg_job *asked = parse("", true);
    struct erg_error err = {0};
    for (double room = (double)largest - 1; room > 0; room = (double)smallest - 1) {
        const struct erg_run_layout_request request = {
            .job = asked, .backend = backend, .world = 1, .room_bytes = room};
        struct erg_run_layout layout;
        int result = erg_run_layout_choose(&layout, &request, &err);
        erg_run_layout_release(&layout);
        if (result != 0)
            break;
        job = choose("", 1, room, NULL, &why);
        smallest = bytes_of(job);
        assert_true((double)smallest <= room);
        erg_job_free(job);
        changes++;
        erg_text_release(&why);
    }
    assert_int_equal(err.status, ERG_INFEASIBLE);
    assert_non_null(strstr(err.message, "open.yaml: the layout: "));
    assert_int_equal(changes, 7); /* microbatches of 8, 4, 2, 1, then recomputation */
    assert_true(smallest < largest / 2);
    erg_job_free(asked);
}

/* What a rank takes is asked of the engine where the job's own numbers stand, too. */
static void existing_keys_are_not_changed(void **state)
{
    (void)state;
    struct erg_text why;
    const char keys[] = "microbatch_size: 4\nrecompute: none\noffload: 0\n";
    struct erg_job *job = choose(keys, 2, 1e9, NULL, &why);
    assert_int_equal(job->layout.microbatch, 4);
    assert_int_equal(erg_layout_batch(&job->layout), 16);
    const double room = (double)bytes_of(job) / 4;
    erg_text_release(&why);
    erg_job_free(job);
    struct erg_job *asked = parse(keys, true);
    const struct erg_run_layout_request request = {
        .job = asked, .backend = backend, .world = 2, .room_bytes = room};
    struct erg_run_layout layout;
    struct erg_error err;
    assert_fails(erg_run_layout_choose(&layout, &request, &err), &err, "the layout: ");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    erg_run_layout_release(&layout);
    erg_job_free(asked);
}

/* That of an earlier start, unless it no longer suits. */
static void a_run_keeps_its_layout(void **state)
{
    (void)state;
    struct erg_text why;
    struct erg_job *before = parse(
        "pipeline: 2\ndata: 2\nmicrobatch_size: 2\nmicrobatches: 4\nrecompute: norms\n", false);
    struct erg_job *job = choose("", 4, 1e9, before, &why);
    assert_non_null(strstr(why.data, "as the run began"));
    assert_int_equal(job->layout.pipeline, 2);
    assert_int_equal(job->layout.recompute, ERG_RECOMPUTE_NORMS);
    erg_text_release(&why);
    erg_job_free(job);
    job = choose("recompute: none\n", 4, 1e9, before, &why);
    assert_null(strstr(why.data, "as the run began"));
    assert_int_equal(job->layout.recompute, ERG_RECOMPUTE_NONE);
    erg_text_release(&why);
    erg_job_free(job);
    job = choose("", 2, 1e9, before, &why);
    assert_int_equal(erg_layout_gpus(&job->layout), 2);
    erg_text_release(&why);
    erg_job_free(job);
    erg_job_free(before);
}

static void complete_jobs_stay_unchanged(void **state)
{
    (void)state;
    struct erg_text why;
    struct erg_job *job = choose(
        "tensor: 1\ncontext: 1\npipeline: 2\nlayers: [1, 1]\nstage_recompute: [norms, full]\n"
        "microbatch_size: 2\nmicrobatches: 8\n",
        2, 1, NULL, &why);
    assert_non_null(strstr(why.data, "as in the job"));
    assert_int_equal(job->layout.stage_recompute[1], ERG_RECOMPUTE_FULL);
    assert_int_equal(job->layout.pipeline, 2);
    erg_text_release(&why);
    erg_job_free(job);
}

static int open_all(void **state)
{
    const struct erg_host_options options = {.float32 = true};
    struct erg_error err;
    return make_job(state) != 0 || erg_host_open(&backend, &options, &err) != 0 ? -1 : 0;
}

static int close_all(void **state)
{
    backend->table->close(backend);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_fits_into_the_room),
        cmocka_unit_test(existing_keys_are_not_changed),
        cmocka_unit_test(a_run_keeps_its_layout),
        cmocka_unit_test(complete_jobs_stay_unchanged),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
