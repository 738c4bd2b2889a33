/*
 * Kernel records (src/trace): categories of 80 names by both rules, the algebra of intervals
 * against brute force, traces written and read again, and what is said of broken ones.
 */
#include "folder.h"
#include "kernels_world.h"

#include "io/json.h"
#include "trace/kineto_read.h"

/* ---- categories ---- */

static int index_in(const char *word, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    fail_msg("'%s' is no category", word);
    return -1;
}

static void test_names(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_csv *csv;
    struct erg_kernel_names *ours, *published;
    assert_ok(erg_csv_load(&csv, ERGON_TEST_SOURCE_DIR "/tests/data/kernels/names.csv", &err),
              &err);
    assert_ok(erg_kernel_names_load(&ours, ERG_KERNEL_RULE_ERGON, &err), &err);
    assert_ok(erg_kernel_names_load(&published, ERG_KERNEL_RULE_CHARLLM, &err), &err);
    assert_int_equal(erg_csv_rows(csv), 80);
    size_t wrong = 0;
    for (int round = 0; round < 2; round++) /* the second time from memory */
        for (size_t row = 0; row < erg_csv_rows(csv); row++) {
            const char *name = erg_csv_text(csv, row, 0);
            struct erg_kernel_record record = {.name = name};
            int category = index_in(erg_csv_text(csv, row, 1), erg_kernel_category_names);
            int sub = index_in(erg_csv_text(csv, row, 2), erg_kernel_sub_names);
            assert_true(erg_kernel_names_apply(ours, &record));
            if ((int)record.category != category || (int)record.sub != sub) {
                print_error("%s: ours %s/%s, expected %s/%s\n", name,
                            erg_kernel_category_names[record.category],
                            erg_kernel_sub_names[record.sub], erg_csv_text(csv, row, 1),
                            erg_csv_text(csv, row, 2));
                wrong++;
            }
            assert_true(erg_kernel_names_apply(published, &record));
            if ((int)record.category !=
                index_in(erg_csv_text(csv, row, 3), erg_kernel_category_names)) {
                print_error("%s: charllm %s, expected %s\n", name,
                            erg_kernel_category_names[record.category], erg_csv_text(csv, row, 3));
                wrong++;
            }
        }
    assert_int_equal(wrong, 0);
    erg_csv_free(csv);
    erg_kernel_names_free(ours);
    erg_kernel_names_free(published);
}

/* NCCL's kernels hide what they do: the name of the exchange says it. Copies are no kernels to the
 * published rule. */
static void test_exchanges(void **state)
{
    (void)state;
    static const struct {
        const char *exchange;
        enum erg_kernel_category category;
        enum erg_kernel_sub sub;
    } cases[] = {{"all_to_allv", ERG_CATEGORY_SEND_RECV, ERG_SUB_ALL_TO_ALL},
                 {"_allgather_base", ERG_CATEGORY_ALL_GATHER, ERG_SUB_NONE},
                 {"reduce_scatter_tensor_coalesced", ERG_CATEGORY_REDUCE_SCATTER, ERG_SUB_NONE},
                 {"allreduce", ERG_CATEGORY_ALL_REDUCE, ERG_SUB_NONE},
                 {"send", ERG_CATEGORY_SEND_RECV, ERG_SUB_NONE},
                 {"recv", ERG_CATEGORY_SEND_RECV, ERG_SUB_NONE},
                 {"broadcast", ERG_CATEGORY_SEND_RECV, ERG_SUB_NONE},
                 {"of tomorrow", ERG_CATEGORY_SEND_RECV, ERG_SUB_NONE}};
    struct erg_error err;
    struct erg_kernel_names *names;
    assert_ok(erg_kernel_names_load(&names, ERG_KERNEL_RULE_ERGON, &err), &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_kernel_record record = {.name = "ncclDevKernel_Generic_4(x)",
                                           .collective.name = cases[i].exchange};
        assert_true(erg_kernel_names_apply(names, &record));
        assert_int_equal(record.category, cases[i].category);
        assert_int_equal(record.sub, cases[i].sub);
    }
    erg_kernel_names_free(names);
    struct erg_kernel_record copy = {.name = "Memcpy DtoD", .source = ERG_SOURCE_MEMCPY};
    assert_ok(erg_kernel_names_load(&names, ERG_KERNEL_RULE_CHARLLM, &err), &err);
    assert_false(erg_kernel_names_apply(names, &copy));
    erg_kernel_names_free(names);
}

static void test_dictionary_errors(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_kernel_names *names;
    write_text("a.csv", "pattern,category,sub\ngemm,MatMul,\nx,Matmul,\n");
    assert_fails(erg_kernel_names_load_file(&names, in_folder("a.csv"), &err), &err,
                 "a.csv:3: 'Matmul': expected one of MatMul, SendRecv");
    write_text("a.csv", "pattern,category,sub\nx,MatMul,atention\n");
    assert_fails(erg_kernel_names_load_file(&names, in_folder("a.csv"), &err), &err,
                 "a.csv:2: 'atention': expected one of attention");
    write_text("a.csv", "pattern,sub\nx,\n");
    assert_fails(erg_kernel_names_load_file(&names, in_folder("a.csv"), &err), &err, "category");
    write_text("a.csv", "pattern,category,sub\n,MatMul,\n");
    assert_fails(erg_kernel_names_load_file(&names, in_folder("a.csv"), &err), &err,
                 "a.csv:2: expected a pattern");
    assert_null(names);
    names = (struct erg_kernel_names *)&err;
    assert_fails(erg_kernel_names_load_file(&names, in_folder("none.csv"), &err), &err, "none.csv");
    assert_null(names);
}

/* ---- the algebra ---- */

enum { SPAN = 120, SETS = 1000 };

/* The same tick by tick. */
static void brute_force(const struct erg_kernel_interval *intervals, size_t count,
                        struct erg_kernel_time *time)
{
    *time = (struct erg_kernel_time){0};
    if (!count)
        return;
    time->begin_ns = time->end_ns = intervals[0].start_ns;
    for (size_t i = 0; i < count; i++) {
        const struct erg_kernel_interval *one = &intervals[i];
        time->begin_ns = one->start_ns < time->begin_ns ? one->start_ns : time->begin_ns;
        time->end_ns = one->end_ns > time->end_ns ? one->end_ns : time->end_ns;
        time->category[one->category].count++;
        time->category[one->category].summed_ns += (double)(one->end_ns - one->start_ns);
    }
    for (int64_t at = time->begin_ns; at < time->end_ns; at++) {
        bool computes[ERG_CATEGORIES] = {false}, others[ERG_CATEGORIES] = {false};
        bool any_computes = false, any = false;
        double power = (double)(at % 7); /* J in this tick */
        size_t shown = 0;
        for (size_t i = 0; i < count; i++) {
            const struct erg_kernel_interval *one = &intervals[i];
            if (one->start_ns > at || one->end_ns <= at)
                continue;
            (one->computes ? computes : others)[one->category] = true;
            any_computes |= one->computes;
            any = true;
        }
        for (size_t i = 0; i < ERG_CATEGORIES; i++)
            shown += (any_computes ? computes : others)[i];
        for (size_t i = 0; i < ERG_CATEGORIES; i++)
            if ((any_computes ? computes : others)[i]) {
                time->category[i].exposed_ns++;
                time->category[i].energy_j += power / (double)shown;
            }
        time->compute_ns += any_computes;
        time->exposed_ns += any && !any_computes;
        time->idle_ns += !any;
        time->energy_j += power;
        time->idle_energy_j += any ? 0 : power;
    }
}

static double tick_energy(void *context, int64_t time_ns)
{
    const double *sums = context;
    return sums[time_ns];
}

static void assert_same_time(const struct erg_kernel_time *a, const struct erg_kernel_time *b)
{
    assert_int_equal(a->begin_ns, b->begin_ns);
    assert_int_equal(a->end_ns, b->end_ns);
    assert_int_equal(a->compute_ns, b->compute_ns);
    assert_int_equal(a->exposed_ns, b->exposed_ns);
    assert_int_equal(a->idle_ns, b->idle_ns);
    assert_near(a->energy_j, b->energy_j, 1e-9);
    assert_near(a->idle_energy_j, b->idle_energy_j, 1e-9);
    for (size_t i = 0; i < ERG_CATEGORIES; i++) {
        assert_int_equal(a->category[i].count, b->category[i].count);
        assert_true(a->category[i].summed_ns == b->category[i].summed_ns);
        assert_int_equal(a->category[i].exposed_ns, b->category[i].exposed_ns);
        assert_near(a->category[i].energy_j, b->category[i].energy_j, 1e-9);
    }
}

static void test_algebra(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_rng random;
    double sums[SPAN * 2 + 1] = {0};
    erg_rng_seed(&random, 11);
    for (int i = 0; i < SPAN * 2; i++)
        sums[i + 1] = sums[i] + (double)(i % 7);
    for (int set = 0; set < SETS; set++) {
        struct erg_kernel_interval intervals[24], taken;
        size_t count = erg_rng_below(&random, 24);
        /* Every third set goes through a file. */
        struct erg_interval_sort *sort = erg_interval_sort_new(set % 3 ? 0 : 5);
        struct erg_kernel_sweep *sweep = erg_kernel_sweep_new(tick_energy, sums);
        struct erg_kernel_time swept, expected;
        int64_t last_ns = 0;
        size_t got = 0;
        for (size_t i = 0; i < count; i++) {
            uint8_t category = (uint8_t)erg_rng_below(&random, ERG_CATEGORIES);
            int64_t start_ns = (int64_t)erg_rng_below(&random, SPAN);
            intervals[i] = (struct erg_kernel_interval){
                .start_ns = start_ns,
                .end_ns = start_ns + (int64_t)erg_rng_below(&random, SPAN / 4),
                .category = category,
                .computes = !erg_kernel_communicates((enum erg_kernel_category)category) &&
                            (category != ERG_CATEGORY_MEMORY || erg_rng_below(&random, 2)),
            };
            assert_ok(erg_interval_sort_put(sort, &intervals[i], &err), &err);
        }
        while (erg_interval_sort_take(sort, &taken, &err) > 0) {
            assert_true(taken.start_ns >= last_ns);
            last_ns = taken.start_ns;
            erg_kernel_sweep_add(sweep, &taken);
            got++;
        }
        assert_int_equal(got, count);
        erg_kernel_sweep_end(sweep, &swept);
        brute_force(intervals, count, &expected);
        assert_same_time(&swept, &expected);
        assert_int_equal(swept.compute_ns + swept.exposed_ns + swept.idle_ns,
                         swept.end_ns - swept.begin_ns);
        erg_interval_sort_free(sort);
    }
}

/* Of records: the device asked for, in any order. */
static void test_time_of_records(void **state)
{
    (void)state;
    struct erg_kernel_record records[WORLD_RECORDS + 1];
    struct erg_kernel_time time;
    for (size_t i = 0; i < WORLD_RECORDS; i++)
        records[i] = world_records[WORLD_RECORDS - 1 - i];
    records[WORLD_RECORDS] = (struct erg_kernel_record){.start_ns = 0, .end_ns = 1, .device = 1};
    erg_kernel_time_of(&time, records, WORLD_RECORDS + 1, 0, NULL, NULL);
    assert_int_equal(time.begin_ns, 1000);
    assert_int_equal(time.end_ns, 25000);
    assert_int_equal(time.compute_ns, 4001 + 10900);
    assert_int_equal(time.exposed_ns, 3999 + 5000);
    assert_int_equal(time.idle_ns, 100);
    assert_int_equal(time.category[ERG_CATEGORY_SEND_RECV].exposed_ns, 0);
    assert_true(isnan(time.energy_j));
    erg_kernel_time_of(&time, records, WORLD_RECORDS + 1, 2, NULL, NULL);
    assert_int_equal(time.end_ns - time.begin_ns, 0);
}

/* ---- written and read again ---- */

struct collected {
    struct erg_kernel_record records[16];
    char names[16][128], exchanges[16][64];
    size_t count;
};

static int collect(void *context, const struct erg_kernel_record *record, struct erg_error *err)
{
    (void)err;
    struct collected *collected = context;
    size_t at = collected->count++;
    assert_true(at < 16);
    collected->records[at] = *record;
    snprintf(collected->names[at], sizeof collected->names[at], "%s", record->name);
    snprintf(collected->exchanges[at], sizeof collected->exchanges[at], "%s",
             record->collective.name ? record->collective.name : "");
    return 0;
}

static void test_kineto_round_trip(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_kineto_about about;
    struct collected read = {0};
    const char *path = in_folder("rank-3.json");
    assert_ok(erg_trace_write_kineto(&world_trace, path, &err), &err);
    assert_ok(erg_kineto_read(&about, path, collect, &read, &err), &err);
    assert_int_equal(about.rank, 3);
    assert_int_equal(about.world, 8);
    assert_true(about.has_base);
    assert_int_equal(about.base_ns, 1700000000000000000);
    assert_int_equal(about.device_count, 1);
    assert_string_equal(about.devices[0].uuid, "GPU-11");
    assert_int_equal(about.events, WORLD_RECORDS + 3); /* a name, a span, a counter */
    assert_int_equal(read.count, WORLD_RECORDS);
    for (size_t i = 0; i < WORLD_RECORDS; i++) {
        const struct erg_kernel_record *is = &read.records[i], *was = &world_records[i];
        assert_int_equal(is->start_ns, was->start_ns);
        assert_int_equal(is->end_ns, was->end_ns);
        assert_int_equal(is->wait_ns, was->wait_ns);
        assert_int_equal(is->device, was->device);
        assert_int_equal(is->stream, was->stream);
        assert_int_equal(is->source, was->source);
        assert_true(is->told);
        assert_int_equal(is->category, was->category);
        assert_int_equal(is->sub, was->sub);
        assert_int_equal(is->correlation, was->correlation);
        assert_int_equal(is->bytes, was->bytes);
        assert_memory_equal(is->grid, was->grid, sizeof is->grid);
        assert_memory_equal(is->block, was->block, sizeof is->block);
        assert_string_equal(read.names[i], was->name);
        assert_string_equal(read.exchanges[i], was->collective.name ? was->collective.name : "");
        assert_int_equal(is->collective.in_elements, was->collective.in_elements);
        assert_int_equal(is->collective.out_elements, was->collective.out_elements);
        assert_int_equal(is->collective.group_size, was->collective.group_size);
    }
}

/* Times are decimals: as doubles they would lose nanoseconds. */
static void test_times(void **state)
{
    (void)state;
    static const struct {
        const char *start, *duration;
        int64_t start_ns, end_ns;
    } cases[] = {
        {"1712345678901234.567", "0.001", 1712345678901234567, 1712345678901234568},
        {"1712345678901234", "12", 1712345678901234000, 1712345678901246000},
        {"-1.5", "1.5", -1500, 0},
        {"\"17.25\"", "1e3", 17250, 1017250},
        {"0.0004", "0.9996", 0, 1000},
        {"1.5e-1", "0", 150, 150},
        {"2305843009213693.952", "0", (int64_t)1 << 61, (int64_t)1 << 61},
    };
    struct erg_error err;
    struct erg_kineto_about about;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text text = {0};
        struct collected read = {0};
        erg_text_printf(&text,
                        "[{\"args\":{\"device\":2,\"x\":[{}]},\"dur\":%s,\"cat\":\"kernel\",\"ts\":"
                        "%s,\"name\":\"\\u00e9\\ud83d\\ude00\",\"ph\":\"X\"}]",
                        cases[i].duration, cases[i].start);
        write_text("times.json", text.data);
        assert_ok(erg_kineto_read(&about, in_folder("times.json"), collect, &read, &err), &err);
        assert_int_equal(read.count, 1);
        assert_int_equal(read.records[0].start_ns, cases[i].start_ns);
        assert_int_equal(read.records[0].end_ns, cases[i].end_ns);
        assert_int_equal(read.records[0].device, 2);
        assert_string_equal(read.names[0], "\xc3\xa9\xf0\x9f\x98\x80");
        erg_text_release(&text);
    }
}

static int ignore(void *context, const struct erg_kernel_record *record, struct erg_error *err)
{
    (void)context;
    (void)record;
    (void)err;
    return 0;
}

static void test_broken_traces(void **state)
{
    (void)state;
#define KERNEL "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,"
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "t.json:1: byte 1: the file ends here; expected a value"},
        {"{\"traceEvents\":[\n{}\n{}]}", "t.json:3: byte 21: expected ',' or ']', got '{'"},
        {"{\"traceEvents\":3}", "t.json:1: byte 16: key 'traceEvents': expected a list of events"},
        {"{\"traceEvents\":[3]}", "byte 17: expected an event, an object"},
        {"7", "byte 1: key 'traceEvents': expected an object with a list of events"},
        {"[" KERNEL "\"dur\":1}]", "byte 2: this kernel has no 'ts'; expected microseconds"},
        {"[" KERNEL "\"ts\":1}]", "byte 2: this kernel has no 'dur'; expected microseconds"},
        {"[" KERNEL "\"ts\":1,\"dur\":-1}]", "key 'dur' of this kernel: expected from 0"},
        {"[" KERNEL "\"ts\":true}]", "key 'ts': expected microseconds"},
        {"[" KERNEL "\"ts\":1e300}]", "key 'ts': expected microseconds"},
        {"[" KERNEL "\"ts\":20000000000000000.00}]", "key 'ts': expected microseconds"},
        {"[" KERNEL "\"ts\":2305843009213693.953}]", "key 'ts': expected microseconds"},
        {"[{\"ph\":\"X\",\"cat\":\"kernel\",\"ts\":1,\"dur\":1}]",
         "byte 2: this kernel lacks its GPU"},
        {"[" KERNEL "\"ts\":1,\"dur\":1}", "the file ends here; expected ',' or ']'"},
        {"[" KERNEL "\"ts\":1,\"dur\":1}] x", "expected nothing behind the document, got 'x'"},
        {"[{\"a\":\"\\q\"}]", "byte 9: expected one of \"\\/bfnrtu behind a backslash, got 'q'"},
        {"[{\"a\":01}]", "expected a number without zeros before it"},
        {"[{\"a\":tru}]", "expected true, got '}'"},
        {"[{a:1}]", "byte 3: expected a key in quotes, got 'a'"},
        {"{\"baseTimeNanoseconds\":\"x\",\"traceEvents\":[]}",
         "key 'baseTimeNanoseconds': expected nanoseconds since 1970"},
        {"{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"cpu_op\"}]}",
         "none of its 1 events ran on a GPU; expected events of the category kernel"},
    };
#undef KERNEL
    struct erg_error err;
    struct erg_kineto_about about;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("t.json", cases[i].text);
        assert_fails(erg_kineto_read(&about, in_folder("t.json"), ignore, NULL, &err), &err,
                     cases[i].message);
    }
    assert_fails(erg_kineto_read(&about, in_folder("absent"), ignore, NULL, &err), &err,
                 "No such file");
    char *deep = malloc(1002);
    memset(deep, '[', 1000);
    strcpy(deep + 1000, "]");
    struct erg_text text = {0};
    erg_text_printf(&text, "{\"x\":%s}", deep);
    write_text("t.json", text.data);
    assert_fails(erg_kineto_read(&about, in_folder("t.json"), ignore, NULL, &err), &err,
                 "expected at most 512 objects and lists in each other");
    erg_text_release(&text);
    free(deep);
}

static void test_compressed(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_kineto_about about;
    struct collected read = {0};
    assert_ok(erg_trace_write_kineto(&world_trace, in_folder("c.json"), &err), &err);
    shell("gzip -c @/c.json > @/c.json.gz && head -c 200 @/c.json.gz > @/cut.json.gz");
    assert_ok(erg_kineto_read(&about, in_folder("c.json.gz"), collect, &read, &err), &err);
    assert_int_equal(read.count, WORLD_RECORDS);
    assert_int_equal(read.records[1].end_ns, 9000);
    assert_fails(erg_kineto_read(&about, in_folder("cut.json.gz"), ignore, NULL, &err), &err,
                 "the compressed file ends early");
}

/* ---- Chakra, by the rules of protobuf's wire format ---- */

struct bytes {
    const unsigned char *at, *end;
};

static uint64_t take_varint(struct bytes *bytes)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        assert_true(bytes->at < bytes->end);
        unsigned char byte = *bytes->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    fail_msg("a varint has more than ten bytes");
    return 0;
}

static struct bytes take_bytes(struct bytes *bytes)
{
    uint64_t count = take_varint(bytes);
    assert_true(count <= (uint64_t)(bytes->end - bytes->at));
    struct bytes part = {bytes->at, bytes->at + count};
    bytes->at += count;
    return part;
}

/* The next field: a number, or bytes. */
static bool take_field(struct bytes *message, unsigned *field, uint64_t *number, struct bytes *part)
{
    if (message->at == message->end)
        return false;
    uint64_t tag = take_varint(message);
    *field = (unsigned)(tag >> 3);
    *number = 0;
    *part = (struct bytes){0};
    if ((tag & 7) == 0)
        *number = take_varint(message);
    else if ((tag & 7) == 2)
        *part = take_bytes(message);
    else
        fail_msg("wire type %u", (unsigned)(tag & 7));
    return true;
}

struct decoded {
    uint64_t id, type, start_us, duration_us, needs[4], need_count;
    char name[128], pg_name[16];
    int64_t comm_type, comm_size, num_ops, tensor_size;
    bool says_cpu, is_cpu;
};

static void copy_text(char *to, size_t capacity, struct bytes part)
{
    snprintf(to, capacity, "%.*s", (int)(part.end - part.at), (const char *)part.at);
}

static void decode_attribute(struct decoded *node, struct bytes message)
{
    unsigned field, value_field = 0;
    uint64_t number, value = 0;
    struct bytes part, text = {0};
    char name[32] = "";
    while (take_field(&message, &field, &number, &part)) {
        if (field == 1) {
            copy_text(name, sizeof name, part);
            continue;
        }
        value_field = field;
        value = number;
        text = part;
    }
    if (strcmp(name, "is_cpu_op") == 0) {
        assert_int_equal(value_field, 27);
        node->says_cpu = true;
        node->is_cpu = value;
    } else if (strcmp(name, "comm_type") == 0) {
        assert_int_equal(value_field, 9);
        node->comm_type = (int64_t)value;
    } else if (strcmp(name, "comm_size") == 0) {
        assert_int_equal(value_field, 9);
        node->comm_size = (int64_t)value;
    } else if (strcmp(name, "num_ops") == 0) {
        assert_int_equal(value_field, 9);
        node->num_ops = (int64_t)value;
    } else if (strcmp(name, "tensor_size") == 0) {
        assert_int_equal(value_field, 13);
        node->tensor_size = (int64_t)value;
    } else if (strcmp(name, "pg_name") == 0) {
        assert_int_equal(value_field, 29);
        copy_text(node->pg_name, sizeof node->pg_name, text);
    } else {
        fail_msg("the attribute '%s'", name);
    }
}

static struct decoded decode_node(struct bytes message)
{
    struct decoded node = {.comm_type = -1, .comm_size = -1, .num_ops = -1, .tensor_size = -1};
    unsigned field;
    uint64_t number;
    struct bytes part;
    while (take_field(&message, &field, &number, &part))
        switch (field) {
        case 1:
            node.id = number;
            break;
        case 2:
            copy_text(node.name, sizeof node.name, part);
            break;
        case 3:
            node.type = number;
            break;
        case 5:
            while (part.at < part.end)
                node.needs[node.need_count++] = take_varint(&part);
            break;
        case 6:
            node.start_us = number;
            break;
        case 7:
            node.duration_us = number;
            break;
        case 10:
            decode_attribute(&node, part);
            break;
        default:
            fail_msg("the field %u", field);
        }
    return node;
}

static size_t decode_file(const char *path, struct decoded *nodes, size_t most, char version[16])
{
    struct erg_error err;
    char *text;
    size_t length, count = 0;
    assert_ok(erg_file_read(path, 0, &text, &length, &err), &err);
    struct bytes file = {(unsigned char *)text, (unsigned char *)text + length};
    struct bytes head = take_bytes(&file), part;
    unsigned field;
    uint64_t number;
    while (take_field(&head, &field, &number, &part))
        if (field == 1)
            copy_text(version, 16, part);
    while (file.at < file.end) {
        assert_true(count < most);
        nodes[count++] = decode_node(take_bytes(&file));
    }
    free(text);
    return count;
}

static void test_chakra(void **state)
{
    (void)state;
    struct erg_error err;
    struct decoded nodes[8];
    char version[16] = "";
    assert_ok(erg_trace_write_chakra(&world_trace, in_folder("a.et"), &err), &err);
    assert_int_equal(decode_file(in_folder("a.et"), nodes, 8, version), WORLD_RECORDS);
    assert_string_equal(version, "0.0.4");
    for (size_t i = 0; i < WORLD_RECORDS; i++) {
        const struct erg_kernel_record *record = &world_records[i];
        assert_int_equal(nodes[i].id, i);
        assert_string_equal(nodes[i].name, record->name);
        /* From the first start on, to the microsecond. */
        assert_near((double)nodes[i].start_us, 1e-3 * (double)(record->start_ns - 1000), 0.501);
        assert_near((double)(nodes[i].start_us + nodes[i].duration_us),
                    1e-3 * (double)(record->end_ns - 1000), 0.501);
        assert_true(nodes[i].says_cpu && !nodes[i].is_cpu);
        for (size_t k = 0; k < nodes[i].need_count; k++)
            assert_true(nodes[i].needs[k] < nodes[i].id);
    }
    assert_int_equal(nodes[0].type, 4); /* COMP_NODE */
    assert_int_equal(nodes[0].num_ops, 1000000);
    assert_int_equal(nodes[0].comm_type, -1);
    assert_int_equal(nodes[1].type, 7); /* COMM_COLL_NODE */
    assert_int_equal(nodes[1].comm_type, 2);
    assert_int_equal(nodes[1].comm_size, 4096);
    assert_string_equal(nodes[1].pg_name, "0");
    assert_int_equal(nodes[1].need_count, 1);
    assert_int_equal(nodes[2].need_count, 2); /* its stream's last is one of those it needs */
    assert_int_equal(nodes[3].type, 7);
    assert_int_equal(nodes[3].comm_type, 6);
    assert_int_equal(nodes[3].need_count, 1);
    assert_int_equal(nodes[3].needs[0], 1);
    assert_int_equal(nodes[4].tensor_size, 1 << 20);

    char *text;
    assert_ok(erg_trace_write_chakra_json(&world_trace, in_folder("a.json"), &err), &err);
    assert_ok(erg_file_read(in_folder("a.json"), 0, &text, NULL, &err), &err);
    json_t *root = json_loads(text, 0, NULL), *list = json_object_get(root, "nodes");
    assert_int_equal(json_array_size(list), WORLD_RECORDS);
    for (size_t i = 0; i < WORLD_RECORDS; i++) {
        json_t *node = json_array_get(list, i);
        assert_string_equal(json_string_value(json_object_get(node, "name")), nodes[i].name);
        assert_int_equal(atoll(json_string_value(json_object_get(node, "startTimeMicros"))),
                         nodes[i].start_us);
        assert_int_equal(json_array_size(json_object_get(node, "dataDeps")), nodes[i].need_count);
    }
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "type")),
                        "COMM_COLL_NODE");
    json_decref(root);
    free(text);
}

/* Records in any order; a need that is not earlier is refused and leaves no file. */
static void test_chakra_order(void **state)
{
    (void)state;
    struct erg_error err;
    struct decoded nodes[8];
    char version[16];
    static const size_t second[] = {1}, absent[] = {9};
    struct erg_kernel_record records[] = {
        {.start_ns = 900,
         .end_ns = 950,
         .name = "b",
         .stream = 1,
         .needs = second,
         .need_count = 1},
        {.start_ns = 100, .end_ns = 200, .name = "a", .stream = 2},
    };
    struct erg_kernel_trace trace = {.records = records, .record_count = 2};
    assert_ok(erg_trace_write_chakra(&trace, in_folder("o.et"), &err), &err);
    assert_int_equal(decode_file(in_folder("o.et"), nodes, 8, version), 2);
    assert_string_equal(nodes[0].name, "a");
    assert_int_equal(nodes[1].needs[0], 0);
    records[0].start_ns = 50;
    assert_fails(erg_trace_write_chakra(&trace, in_folder("p.et"), &err), &err,
                 "kernel 0, 'b', needs kernel 1, which begins no earlier");
    records[0].needs = absent;
    assert_fails(erg_trace_write_chakra(&trace, in_folder("p.et"), &err), &err,
                 "needs kernel 9, which is none");
    assert_int_not_equal(access(in_folder("p.et"), F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_dictionary_errors),
        cmocka_unit_test(test_algebra),
        cmocka_unit_test(test_time_of_records),
        cmocka_unit_test(test_kineto_round_trip),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_broken_traces),
        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_chakra),
        cmocka_unit_test(test_chakra_order),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
