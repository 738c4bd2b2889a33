/* The picture of `ergon monitor`, without a terminal. */
#include "observed.h"

#include "base/memory.h"
#include "observe/screen.h"

enum { GPUS = 8 };

/* GPU g at 80 (g + 1) W of 700 W for 100 steps, the step before at 70 W. */
static struct erg_live_view make_view(size_t count)
{
    struct erg_open_gpu items[GPUS] = {0};
    observed_gpus(items, count);
    struct erg_live_view view = {
        .seconds = 92, .count = count, .gpus = erg_xcalloc(count, sizeof *view.gpus)};
    for (size_t g = 0; g < count; g++) {
        struct erg_live_gpu *gpu = &view.gpus[g];
        gpu->info = items[g].info;
        gpu->answers = true;
        const struct {
            enum erg_metric metric;
            int64_t value;
        } values[] = {
            {ERG_METRIC_POWER_INSTANT, 80000 * (int64_t)(g + 1)},
            {ERG_METRIC_POWER_LIMIT, 700000},
            {ERG_METRIC_SM_CLOCK, 1980},
            {ERG_METRIC_MEMORY_CLOCK, 3201},
            {ERG_METRIC_TEMPERATURE, 61},
            {ERG_METRIC_MEMORY_TEMPERATURE, 58},
            {ERG_METRIC_MARGIN, 26},
            {ERG_METRIC_UTILISATION, 97},
        };
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            gpu->values[values[i].metric] = values[i].value;
            gpu->valid |= UINT64_C(1) << values[i].metric;
        }
        gpu->energy_j = 12345;
        gpu->reasons_recent = ERG_REASON_SW_POWER_CAP;
        for (int m = 0; m < ERG_METRICS; m++)
            gpu->rates[m] = NAN;
        gpu->rates[ERG_METRIC_NVLINK_TX] = 200e9;
        gpu->rates[ERG_METRIC_NVLINK_RX] = 112e9;
        for (int i = 0; i < ERG_LIVE_HISTORY; i++)
            gpu->history_w[i] = i < ERG_LIVE_HISTORY - 10 ? NAN : 700.0f;
        gpu->history_w[ERG_LIVE_HISTORY - 1] = 70;
    }
    return view;
}

/* One row without the blanks at its end. */
static void add_row(struct erg_text *out, const struct erg_screen *screen, int row)
{
    const struct erg_cell *cells = screen->cells + (size_t)row * (size_t)screen->columns;
    int count = screen->columns;
    while (count && cells[count - 1].code == ' ')
        count--;
    for (int i = 0; i < count; i++)
        erg_screen_cell_text(out, &cells[i]);
}

/* The rows as text, with line ends; a row wider than the screen fails. */
static char *draw(const struct erg_live_view *view, int rows, int columns, bool ascii, size_t first)
{
    struct erg_screen screen = {0};
    struct erg_screen_options options = {.host = "node7", .ascii = ascii, .first = first};
    struct erg_text text = {0};
    erg_screen_draw(&screen, rows, columns, view, &options);
    for (int row = 0; row < rows; row++) {
        add_row(&text, &screen, row);
        erg_text_add(&text, "\n");
    }
    erg_screen_release(&screen);
    return text.data;
}

static void check_parts(char *picture, const char *const *parts)
{
    for (; *parts; parts++)
        if (!strstr(picture, *parts))
            fail_msg("expected \"%s\" in\n%s", *parts, picture);
    free(picture);
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

static void test_eight_gpus_on_an_old_terminal(void **state)
{
    (void)state;
    struct erg_live_view view = make_view(8);
    char *picture = draw(&view, 24, 80, false, 0);
    assert_int_equal(count_of(picture, "NVIDIA H200"), 8);
    assert_int_equal(count_of(picture, "12.3 kJ"), 8);
    assert_int_equal(count_of(picture, "power cap"), 8);
    assert_int_equal(count_of(picture, "\n"), 24);
    check_parts(picture,
                (const char *[]){"ergon  node7  8 GPUs  2.88 kW  98.8 kJ in 0:01:32", "q quits\n",
                                 "97 %  1980 MHz   61 °C  mem 58 °C", "640/700 W", "█", "▁", NULL});
    erg_live_view_release(&view);
}

static void test_two_gpus_get_a_sparkline_of_their_own(void **state)
{
    (void)state;
    struct erg_live_view view = make_view(2);
    char *picture = draw(&view, 24, 120, false, 0);
    assert_int_equal(count_of(picture, "█████████▁\n"), 2);
    check_parts(picture, (const char *[]){"in 0:01:32  largest over mean: power 1.33, clock 1.00, "
                                          "temperature 1.00 ",
                                          "NVLink 312 GB/s", "80/700 W  power cap", NULL});
    erg_live_view_release(&view);
}

static void test_on_a_phone(void **state)
{
    (void)state;
    struct erg_live_view view = make_view(2);
    check_parts(draw(&view, 12, 50, false, 0),
                (const char *[]){"2 GPUs  240 W  24.7 kJ in 0:01:32", "61 °C  12.3 kJ", "160/700 W",
                                 "power cap", NULL});
    check_parts(draw(&view, 3, 50, false, 0),
                (const char *[]){"\n0     80/700 W   61 °C  12.3 kJ  power cap\n"
                                 "1    160/700 W   61 °C  12.3 kJ  power cap\n",
                                 NULL});
    erg_live_view_release(&view);
}

static void test_more_gpus_than_rows(void **state)
{
    (void)state;
    struct erg_live_view view = make_view(8);
    assert_int_equal(erg_screen_page(5, 8), 4);
    assert_int_equal(erg_screen_page(24, 8), 11);
    char *picture = draw(&view, 5, 60, false, 4);
    assert_null(strstr(picture, "320/700"));
    check_parts(picture, (const char *[]){"400/700 W", "640/700 W", NULL});
    erg_live_view_release(&view);
}

static void test_any_size(void **state)
{
    (void)state;
    struct erg_live_view view = make_view(8);
    for (int rows = 1; rows < 40; rows += 3)
        for (int columns = 1; columns < 200; columns += 7) {
            char *picture = draw(&view, rows, columns, true, 0);
            for (const char *at = picture; *at; at++)
                assert_true((unsigned char)*at < 0x80);
            assert_int_equal(count_of(picture, "\n"), rows);
            free(picture);
        }
    erg_live_view_release(&view);
}

/* Where there is room, both clocks; a critical error before the reasons. */
static void test_memory_clock_and_critical_errors(void **state)
{
    (void)state;
    struct erg_live_view view = make_view(2);
    view.gpus[1].values[ERG_METRIC_XID] = 79;
    view.gpus[1].valid |= UINT64_C(1) << ERG_METRIC_XID;
    check_parts(draw(&view, 24, 120, false, 0),
                (const char *[]){"97 %  1980 MHz  mem 3201 MHz   61 °C  mem 58 °C", "  power cap\n",
                                 "XID 79, power cap\n", NULL});
    char *narrow = draw(&view, 24, 60, false, 0);
    assert_int_equal(count_of(narrow, "3201"), 0);
    assert_int_equal(count_of(narrow, "XID 79"), 1);
    free(narrow);
    erg_live_view_release(&view);
}

static void test_trouble_and_unknown_values(void **state)
{
    (void)state;
    struct erg_live_view view = make_view(3);
    view.gpus[0].answers = false;
    view.gpus[1].answers = false;
    view.gpus[1].lost = true;
    snprintf(view.gpus[0].info.trouble, sizeof view.gpus[0].info.trouble, "needs a reset");
    view.gpus[2].valid = 0;
    view.gpus[2].energy_j = view.gpus[2].power_energy_j = NAN;
    view.gpus[2].reasons_recent = 0;
    check_parts(draw(&view, 24, 80, false, 0),
                (const char *[]){"3 GPUs  240 W of 2  24.7 kJ of 2 in 0:01:32", /* is a part */
                                 "\n0  needs a reset  NVIDIA H200\n",
                                 "\n1  fell off the bus  NVIDIA H200\n", "- %     - MHz    - °C",
                                 "- W", NULL});
    erg_live_view_release(&view);
}

static void test_styles(void **state)
{
    (void)state;
    struct erg_live_view view = make_view(8);
    view.gpus[7].values[ERG_METRIC_POWER_INSTANT] = 690000;
    struct erg_screen screen = {0};
    struct erg_screen_options options = {.host = "node7"};
    erg_screen_draw(&screen, 24, 80, &view, &options);
    /* The bars of the first and the last GPU, in the rows below their facts. */
    assert_int_equal(screen.cells[2 * 80 + 2].style, ERG_STYLE_GOOD);
    assert_int_equal(screen.cells[16 * 80 + 2].style, ERG_STYLE_BAD);
    assert_int_equal(screen.cells[16 * 80 + 2].code, 0x2588);
    erg_screen_release(&screen);
    erg_live_view_release(&view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eight_gpus_on_an_old_terminal),
        cmocka_unit_test(test_two_gpus_get_a_sparkline_of_their_own),
        cmocka_unit_test(test_on_a_phone),
        cmocka_unit_test(test_more_gpus_than_rows),
        cmocka_unit_test(test_any_size),
        cmocka_unit_test(test_memory_clock_and_critical_errors),
        cmocka_unit_test(test_trouble_and_unknown_values),
        cmocka_unit_test(test_styles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
