/* Order of data, learning rates and initial weights beside tables that were made in Python; which
 * rank trains on which sample. */
#include "check.h"
#include "folder.h"
#include "json_file.h"

#include "base/memory.h"
#include "base/random.h"
#include "train/data/batch.h"
#include "train/data/order.h"
#include "train/engine/initialize.h"
#include "train/engine/rate.h"
#include "train/engine/reader.h"

#include <inttypes.h>
#include <time.h>

#define DATA ERGON_TEST_SOURCE_DIR "/tests/data/train/"

static json_t *load(const char *path)
{
    json_t *document;
    struct erg_error err;
    assert_ok(load_json(&document, path, &err), &err);
    return document;
}

static uint64_t number(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void every_epoch_is_a_permutation(void **state)
{
    (void)state;
    json_t *cases = load(DATA "order.json");
    assert_true(json_array_size(cases) > 8);
    for (size_t c = 0; c < json_array_size(cases); c++) {
        const json_t *item = json_array_get(cases, c), *first = json_object_get(item, "first");
        uint64_t seed = number(item, "seed"), epoch = number(item, "epoch");
        uint64_t count = number(item, "count"), digest = 0;
        bool *seen = erg_xcalloc(count, sizeof *seen);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t sample = erg_order_permute(seed, epoch, count, i);
            assert_true(sample < count && !seen[sample]);
            seen[sample] = true;
            digest = erg_hash_u64(digest, sample);
            if (i < json_array_size(first))
                assert_int_equal(sample, json_integer_value(json_array_get(first, i)));
        }
        char text[32];
        snprintf(text, sizeof text, "%016" PRIx64, digest);
        assert_string_equal(text, json_string_value(json_object_get(item, "digest")));
        free(seen);
    }
    json_decref(cases);
}

static void order_continues_from_any_place(void **state)
{
    (void)state;
    for (int several = 0; several < 2; several++) {
        struct erg_order_set sets[] = {{0.5, 7, 0}, {0.3, 100, 0}, {0.2, 1, 0}}, again[3];
        memcpy(again, sets, sizeof again);
        struct erg_data_order whole = {5, true, sets, several ? 3 : 1, 0};
        struct erg_order_place places[200];
        size_t of_set[3] = {0};
        for (size_t i = 0; i < 200; i++) {
            places[i] = erg_order_deal(&whole);
            of_set[places[i].set]++;
            assert_true(places[i].sample < sets[places[i].set].samples);
        }
        if (several) { /* in proportion to their weights */
            assert_int_equal(of_set[0], 100);
            assert_int_equal(of_set[1], 60);
            assert_int_equal(of_set[2], 40);
        }
        for (size_t start = 0; start < 200; start += 13) {
            struct erg_data_order part = {5, true, again, several ? 3 : 1, 0};
            erg_order_seek(&part, start);
            for (size_t i = start; i < 200; i++) {
                struct erg_order_place place = erg_order_deal(&part);
                assert_memory_equal(&place, &places[i], sizeof place);
            }
        }
    }
}

static void rates_are_those_of_the_table(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct erg_learning_rate rate;
    } cases[] = {
        {"cosine", {ERG_RATE_COSINE, 2e-3, 2e-4, 5, 20, 0, false}},
        {"cosine_from_0", {ERG_RATE_COSINE, 2e-3, 2e-4, 5, 20, 0, true}},
        {"linear", {ERG_RATE_LINEAR, 2e-3, 2e-4, 5, 20, 0, false}},
        {"constant", {ERG_RATE_CONSTANT, 2e-3, 2e-4, 5, 20, 0, false}},
        {"wsd_linear", {ERG_RATE_WSD_LINEAR, 2e-3, 2e-4, 5, 20, 6, false}},
        {"wsd_sqrt", {ERG_RATE_WSD_SQRT, 2e-3, 2e-4, 5, 20, 6, false}},
    };
    json_t *table = load(DATA "schedules.json");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const json_t *rates = json_object_get(table, cases[c].name);
        assert_int_equal(json_array_size(rates), 20);
        for (uint64_t u = 0; u < 20; u++)
            assert_close(erg_rate_at(&cases[c].rate, u),
                         json_number_value(json_array_get(rates, u)), 1e-14);
        assert_near(erg_rate_at(&cases[c].rate, 20), 2e-4, 0);
    }
    json_decref(table);
}

static void hashes_are_those_of_the_table(void **state)
{
    (void)state;
    json_t *table = load(DATA "hashes.json");
    const json_t *numbers = json_object_get(table, "hash_u64");
    const json_t *texts = json_object_get(table, "hash_text");
    for (size_t i = 0; i < json_array_size(numbers); i++) {
        const json_t *row = json_array_get(numbers, i);
        uint64_t n[3];
        for (size_t k = 0; k < 3; k++)
            n[k] = strtoull(json_string_value(json_array_get(row, k)), NULL, 10);
        assert_int_equal(erg_hash_u64(n[0], n[1]), n[2]);
    }
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *row = json_array_get(texts, i);
        assert_int_equal(erg_hash_text(json_string_value(json_array_get(row, 0))),
                         strtoull(json_string_value(json_array_get(row, 1)), NULL, 10));
    }
    json_decref(table);
}

/* One tensor of a checkpoint as the ranks of a tensor group have it, put together again. */
static float *put_together(const struct erg_model *model, long tensor, uint64_t seed,
                           const char *name, size_t *count)
{
    float *whole = NULL;
    *count = 0;
    for (long place = 0; place < tensor; place++) {
        struct erg_layer_range layers = {0, model->layers};
        struct erg_weights_request request = {model, tensor, place, &layers, 1, true, true, 1, 0};
        struct erg_weights weights;
        struct erg_weight_spans spans;
        erg_weights_init(&weights, &request);
        erg_weight_spans_init(&spans, &weights, &request);
        float *values = erg_xcalloc(weights.elements, sizeof *values);
        struct erg_error err;
        assert_ok(erg_initialize(values, &weights, &spans, model, seed, &err), &err);
        for (size_t i = 0; i < spans.count; i++) {
            const struct erg_weight_span *span = &spans.items[i];
            if (strcmp(span->name, name) != 0)
                continue;
            *count = span->shape[0] * (span->dimensions == 2 ? span->shape[1] : 1);
            if (!whole)
                whole = erg_xcalloc(*count, sizeof *whole);
            for (size_t row = 0; row < span->rows; row++)
                for (size_t column = 0; column < span->columns; column++)
                    whole[erg_weight_span_there(span, row, column)] =
                        values[erg_weight_span_here(span, row, column)];
        }
        free(values);
        erg_weight_spans_release(&spans);
        erg_weights_release(&weights);
    }
    return whole;
}

static void check_initial(const char *name, long tensor)
{
    struct erg_error err;
    struct erg_model *model;
    char path[512];
    snprintf(path, sizeof path, "%s%s", DATA, name);
    assert_ok(erg_model_load(&model, path, &err), &err);
    json_t *table = load(DATA "init.json");
    for (uint64_t seed = 0; seed <= 1234; seed += 1234) {
        const json_t *tensors = json_object_get(json_object_get(table, name), seed ? "1234" : "0");
        assert_true(json_object_size(tensors) > 8);
        for (void *at = json_object_iter((json_t *)(uintptr_t)tensors); at;
             at = json_object_iter_next((json_t *)(uintptr_t)tensors, at)) {
            const json_t *expected = json_object_iter_value(at);
            size_t count;
            float *values = put_together(model, tensor, seed, json_object_iter_key(at), &count);
            if (!values)
                fail_msg("%s has no tensor %s", name, json_object_iter_key(at));
            uint64_t sum = 0;
            for (size_t i = 0; i < count; i++) {
                uint32_t bits;
                memcpy(&bits, &values[i], sizeof bits);
                sum += bits;
            }
            for (size_t i = 0; i < 3; i++)
                assert_near(
                    values[i],
                    json_number_value(json_array_get(json_object_get(expected, "first"), i)), 0);
            assert_int_equal(sum, number(expected, "sum_of_bits"));
            free(values);
        }
    }
    json_decref(table);
    erg_model_free(model);
}

/* Equal bits whatever the tensor degree, of vocabularies that no padding fits, too. */
static void initial_weights_are_those_of_the_table(void **state)
{
    (void)state;
    for (long tensor = 1; tensor <= 4; tensor *= 2) {
        check_initial("llama", tensor);
        check_initial("qwen3", tensor);
        check_initial("qwen2", tensor);
        check_initial("gpt2", tensor);
    }
}

/* Tokens that count up, so that the first one of a sample says which it is. */
static void each_sample_has_its_rank_microbatch_and_row(void **state)
{
    enum { S = 8, B = 2, M = 3, D = 2, C = 2, SAMPLES = B * M * D, STEPS = 2 };
    static const char text[] = "model: " DATA "llama\n"
                               "cluster: {nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\n"
                               "context: 2\ndata: 2\nmicrobatch_size: 2\nmicrobatches: 3\n"
                               "sequence: 8\n"
                               "train:\n"
                               "  data: [{file: counted, type: uint16}]\n"
                               "  updates: 5\n  learning_rate: 0.1\n";
    uint16_t tokens[STEPS * SAMPLES * S + 1];
    struct erg_job *job;
    struct erg_error err;
    assert_int_equal(make_folder(state), 0);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (uint16_t)i;
    assert_ok(erg_file_write(in_folder("counted"), (const char *)tokens, sizeof tokens, &err),
              &err);
    assert_ok(erg_job_parse(&job, in_folder("job.yaml"), text, strlen(text), NULL, &err), &err);
    struct erg_batch_files files = {"train.data", job->training->data, 1, false};
    for (long data = 0; data < D; data++)
        for (long context = 0; context < C; context++) {
            struct erg_batches batches;
            struct erg_batch_share share = {data, context};
            int32_t ids[M * B * S / C], targets[M * B * S / C];
            uint64_t counted;
            assert_ok(erg_batches_open(&batches, job, &files, &err), &err);
            for (long step = 0; step < STEPS; step++) {
                assert_ok(erg_batches_next(&batches, &share, ids, targets, &counted, &err), &err);
                assert_int_equal(counted, SAMPLES * S);
                for (long i = 0; i < M * B * S / C; i++) {
                    long row = i / (S / C), place = i % (S / C), half = place / 2;
                    long microbatch = row / B, chunk = half ? 2 * C - 1 - context : context;
                    long sample = (microbatch * D + data) * B + row % B + step * SAMPLES;
                    assert_int_equal(ids[i], sample * S + 2 * chunk + place % 2);
                    assert_int_equal(targets[i], ids[i] + 1);
                }
            }
            erg_batches_release(&batches);
        }
    erg_job_free(job);
    remove_folder(state);
}

/* Work of 60 ms beside 30 of one's own is waited for the other 30, and what is done in time not. */
static void rest_ms(int milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL);
}

static void work_60_ms(void *context)
{
    rest_ms(60);
    ++*(int *)context;
}

static void read_ahead_is_awaited(void **state)
{
    (void)state;
    int done = 0;
    struct erg_reader *reader = erg_reader_open(work_60_ms, &done);
    assert_near(erg_reader_wait(reader), 0, 0);
    erg_reader_begin(reader);
    double waited_s = erg_reader_wait(reader);
    assert_true(done == 1 && waited_s > 0.055);
    erg_reader_begin(reader);
    rest_ms(30);
    double less_s = erg_reader_wait(reader);
    assert_true(done == 2 && less_s < waited_s);
    erg_reader_begin(reader);
    rest_ms(600);
    assert_true(erg_reader_wait(reader) < 0.05 && done == 3);
    erg_reader_begin(reader);
    erg_reader_close(reader); /* it ends what has begun */
    assert_int_equal(done, 4);
    erg_reader_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_ahead_is_awaited),
        cmocka_unit_test(every_epoch_is_a_permutation),
        cmocka_unit_test(order_continues_from_any_place),
        cmocka_unit_test(rates_are_those_of_the_table),
        cmocka_unit_test(hashes_are_those_of_the_table),
        cmocka_unit_test(initial_weights_are_those_of_the_table),
        cmocka_unit_test(each_sample_has_its_rank_microbatch_and_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
