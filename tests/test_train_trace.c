/* The trace of a step of ergon train over four ranks: two stages of two chunks, two pipelines. */
#include "folder.h"
#include "json_file.h"
#include "program.h"

#include "io/file.h"

enum { RANKS = 4, MICROBATCHES = 4, CHUNKS = 2, MOST = 400 };

struct span {
    double begin, end; /* us */
    int rank, lane;
    char name[40];
};

static const char job[] = "model: " ERGON_TEST_SOURCE_DIR "/tests/data/train/llama\n"
                          "cluster: {nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\n"
                          "pipeline: 2\nvirtual_stages: 2\ndata: 2\n"
                          "microbatch_size: 2\nmicrobatches: 4\nsequence: 16\n"
                          "train:\n"
                          "  data: [{file: text, type: uint16}]\n"
                          "  updates: 5\n  learning_rate: 0.01\n  log_every: 1\n"
                          "  trace_every: 3\n";

static size_t read_spans(const json_t *events, struct span *spans)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0)
            continue;
        struct span *span = &spans[count++];
        assert_true(count < MOST);
        span->begin = json_number_value(json_object_get(event, "ts"));
        span->end = span->begin + json_number_value(json_object_get(event, "dur"));
        span->rank = (int)json_integer_value(json_object_get(event, "pid"));
        span->lane = (int)json_integer_value(json_object_get(event, "tid"));
        snprintf(span->name, sizeof span->name, "%s",
                 json_string_value(json_object_get(event, "name")));
        assert_true(span->end >= span->begin && span->begin >= 0);
    }
    return count;
}

/* The first span of a rank with a name. */
static const struct span *first(const struct span *spans, size_t count, int rank, const char *name)
{
    const struct span *found = NULL;
    for (size_t i = 0; i < count; i++)
        if (spans[i].rank == rank && strcmp(spans[i].name, name) == 0 &&
            (!found || spans[i].begin < found->begin))
            found = &spans[i];
    if (!found)
        fail_msg("rank %d has no %s", rank, name);
    return found;
}

/* Ranks 0 and 1 are stage 0 of the two pipelines; 2 and 3 are stage 1, whose first pass waits for a
 * message. */
static void check_order(const struct span *spans, size_t count)
{
    for (int rank = 0; rank < RANKS; rank++) {
        const struct span *forward = first(spans, count, rank, "forward 0");
        const struct span *backward = first(spans, count, rank, "backward 0");
        bool received = false;
        assert_true(backward->begin >= forward->end - 0.01);
        for (size_t i = 0; i < count; i++)
            received =
                received || (spans[i].rank == rank && strcmp(spans[i].name, "message") == 0 &&
                             spans[i].end <= forward->begin + 0.01);
        assert_int_equal(received, rank >= 2);
        assert_true(first(spans, count, rank, "update")->begin >= backward->end);
    }
}

static void check_lanes(const struct span *spans, size_t count)
{
    int passes[RANKS] = {0}, updates[RANKS] = {0}, messages[RANKS] = {0};
    for (size_t i = 0; i < count; i++) {
        const struct span *span = &spans[i];
        passes[span->rank] += strstr(span->name, "ward ") != NULL;
        updates[span->rank] += strcmp(span->name, "update") == 0;
        messages[span->rank] += strcmp(span->name, "message") == 0;
        for (size_t k = 0; k < i; k++)
            if (spans[k].rank == span->rank && spans[k].lane == span->lane)
                assert_true(spans[k].end <= span->begin + 0.01 ||
                            span->end <= spans[k].begin + 0.01);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(passes[rank], 2 * CHUNKS * MICROBATCHES);
        assert_int_equal(updates[rank], 1);
        /* Three hops of each microbatch in each direction, seen at both ends. */
        assert_int_equal(messages[rank], 3 * 2 * MICROBATCHES);
    }
}

static void a_trace_shows_all_ranks(void **state)
{
    (void)state;
    json_t *document;
    struct erg_error err;
    struct span spans[MOST];
    assert_ok(load_json(&document, in_folder("run/trace-00000003.json"), &err), &err);
    const json_t *events =
        json_is_array(document) ? document : json_object_get(document, "traceEvents");
    size_t count = read_spans(events, spans);
    check_lanes(spans, count);
    check_order(spans, count);
    json_decref(document);
    assert_int_not_equal(access(in_folder("run/trace-00000002.json"), F_OK), 0);
}

/* Of traced steps the log has what they waited for; of others it is not known. */
static void waits_are_logged(void **state)
{
    (void)state;
    char *text;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("run/metrics.jsonl"), 0, &text, NULL, &err), &err);
    int line = 0;
    for (char *at = text, *end; *at; at = end + 1) {
        json_t *object = json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *bubble = json_object_get(object, "bubble_ms");
        end = strchr(at, '\n');
        if (++line == 3)
            assert_true(json_number_value(bubble) > 0);
        else
            assert_true(json_is_null(bubble));
        json_decref(object);
    }
    assert_int_equal(line, 4);
    free(text);
}

static int train(void **state)
{
    uint16_t tokens[4000];
    struct erg_error err;
    if (make_folder(state) != 0)
        return -1;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (uint16_t)(i * i % 499);
    if (erg_file_write(in_folder("text"), (const char *)tokens, sizeof tokens, &err) ||
        erg_file_write(in_folder("job.yaml"), job, strlen(job), &err))
        return -1;
    struct erg_text line = with_folder("run -n 4 -- " ERGON_TEST_PROGRAM
                                       " train @/job.yaml --device host -q -n 4 -o @/run 2>&1");
    check_program(line.data, 0, "trained 4 steps");
    erg_text_release(&line);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_shows_all_ranks),
        cmocka_unit_test(waits_are_logged),
    };
    return cmocka_run_group_tests(tests, train, remove_folder);
}
