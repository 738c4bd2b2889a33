/* Characters and texts on the grid of a screen. */
#include "observe/screen_internal.h"

static uint32_t decode(const char **text)
{
    const unsigned char *byte = (const unsigned char *)*text;
    int more = byte[0] >= 0xF0 ? 3 : byte[0] >= 0xE0 ? 2 : byte[0] >= 0xC0 ? 1 : 0;
    uint32_t code = more ? byte[0] & (0x3Fu >> more) : byte[0];
    for (int i = 1; i <= more; i++) {
        if ((byte[i] & 0xC0) != 0x80) { /* no UTF-8 */
            *text += i;
            return '?';
        }
        code = code << 6 | (byte[i] & 0x3F);
    }
    *text += more + 1;
    return code < 0x20 || (code >= 0x80 && code < 0xA0) || (!more && code >= 0x80) ? '?' : code;
}

/* The nearest of ASCII to what the picture uses. */
static uint32_t plain(uint32_t code)
{
    static const char eighths[] = "_.:-=+*";
    if (code < 0x80)
        return code;
    if (code >= 0x2581 && code <= 0x2588) /* lower eighths: sparklines; the full block: bars */
        return code == 0x2588 ? '#' : (uint32_t)eighths[code - 0x2581];
    if (code >= 0x2589 && code <= 0x258F) /* left eighths */
        return code <= 0x258C ? '#' : '-';
    if (code == 0x2591)
        return '-';
    return code == 0xB0 ? ' ' : '?';
}

void erg_canvas_put(const struct erg_canvas *canvas, int row, int column, uint32_t code,
                    enum erg_style style)
{
    struct erg_screen *screen = canvas->screen;
    if (row < 0 || row >= screen->rows || column < 0 || column >= screen->columns)
        return;
    screen->cells[row * screen->columns + column] =
        (struct erg_cell){canvas->ascii ? plain(code) : code, style};
}

int erg_canvas_text(const struct erg_canvas *canvas, int row, int column, const char *text,
                    int columns, enum erg_style style)
{
    int used = 0;
    for (; *text && used < columns; used++)
        erg_canvas_put(canvas, row, column + used, decode(&text), style);
    return used;
}
