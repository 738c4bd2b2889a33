/* hooks/: the table of a profile, by clocks, and its words. */
#include "check.h"

#include "hooks/hook_rows.h"

#include <math.h>

static void rows_are_means_and_say_the_command(void **state)
{
    (void)state;
    const struct erg_hook_shape shape = {1, 2, 6};
    struct erg_hook_rows rows;
    struct erg_text text = {0};
    static const double energies_j[] = {9, 8, 7.5, 8, 8.5, 9};
    erg_hook_rows_init(&rows, &shape);
    for (int clock = 0; clock < 6; clock++) {
        assert_false(erg_hook_rows_suffice(&rows));
        for (int again = clock == 1; again >= 0; again--) { /* 1799 MHz lacks a row */
            erg_hook_rows_begin(&rows, 1800 - 100 * clock + (again ? 99 : 0));
            for (size_t chunk = 0; chunk < 2; chunk++)
                for (int direction = 0; direction < 2; direction++)
                    for (int rank = -1; rank <= 1; rank += 2)
                        erg_hook_rows_add(&rows, 0, chunk, (enum erg_direction)direction,
                                          again && chunk ? (double)NAN : 2 + 0.5 * rank,
                                          energies_j[clock] + rank, 0.012);
            erg_hook_rows_wait(&rows, again ? (double)NAN : 80 + clock);
            assert_int_equal(erg_hook_rows_end(&rows), !again);
        }
    }
    assert_true(erg_hook_rows_suffice(&rows));
    erg_hook_rows_write(&rows, &text);
    assert_non_null(strstr(text.data, "stage,instruction,frequency,time,energy\n"
                                      "0,forward/0,1800,2,9\n0,forward/0,1700,2,8\n"
                                      "0,forward/0,1600,2,7.5\n"));
    assert_non_null(strstr(text.data, "\n0,backward/1,1300,2,9\n"));
    assert_null(strstr(text.data, "1799"));
    text.count = 0;
    erg_hook_rows_say(&rows, "my profile's.csv", &text);
    assert_string_equal(text.data,
                        "my profile's.csv has 6 clocks, 1800 to 1300 MHz, to +-1.2 %; at 1 more "
                        "the energy of passes could not be determined; a plan: ergon frontier "
                        "'my profile'\\''s.csv' -m 6 -p 82.5 --schedule interleaved "
                        "--virtual-stages 2 --plan plan.json");
    erg_text_release(&text);
    erg_hook_rows_release(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_means_and_say_the_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
