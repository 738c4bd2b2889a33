/* Figures: what their SVG is made of: labels, boxes, axes, colours. */
#include "report/figures/figures_internal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void erg_svg_escape(struct erg_text *out, const char *text)
{
    for (; *text; text++) {
        const char *entity = *text == '<'   ? "&lt;"
                             : *text == '>' ? "&gt;"
                             : *text == '&' ? "&amp;"
                             : *text == '"' ? "&quot;"
                                            : NULL;
        if (entity)
            erg_text_add(out, entity);
        else if ((unsigned char)*text >= ' ' || *text == '\n')
            erg_text_add_bytes(out, text, 1);
    }
}

static void add_label(struct erg_text *out, double x, double y, double turn, enum svg_anchor anchor,
                      const char *style, const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    erg_text_printf(out, "<text x=\"%.1f\" y=\"%.1f\"", x, y);
    if (anchor != SVG_START)
        erg_text_printf(out, " text-anchor=\"%s\"", anchors[anchor]);
    if (turn != 0)
        erg_text_printf(out, " transform=\"rotate(%g %.1f %.1f)\"", turn, x, y);
    if (style)
        erg_text_printf(out, " class=\"%s\"", style);
    erg_text_add(out, ">");
    erg_svg_escape(out, text);
    erg_text_add(out, "</text>\n");
}

void erg_svg_label(struct erg_text *out, double x, double y, enum svg_anchor anchor,
                   const char *style, const char *text)
{
    add_label(out, x, y, 0, anchor, style, text);
}

void erg_svg_label_up(struct erg_text *out, double x, double y, enum svg_anchor anchor,
                      const char *style, const char *text)
{
    add_label(out, x, y, -90, anchor, style, text);
}

void erg_svg_line(struct erg_text *out, double x1, double y1, double x2, double y2,
                  const char *style)
{
    erg_text_printf(out, "<path d=\"M%.1f %.1fL%.1f %.1f\" class=\"%s\"/>\n", x1, y1, x2, y2,
                    style);
}

void erg_svg_title(struct erg_text *out, const char *text)
{
    erg_text_add(out, "<title>");
    erg_svg_escape(out, text);
    erg_text_add(out, "</title>");
}

void erg_svg_box(struct erg_text *out, double x, double y, double width, double height,
                 const char *style, const char *fill, const char *title)
{
    erg_text_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"",
                    x, y, width, height, style);
    if (fill)
        erg_text_printf(out, " fill=\"%s\"", fill);
    if (!title) {
        erg_text_add(out, "/>\n");
        return;
    }
    erg_text_add(out, ">");
    erg_svg_title(out, title);
    erg_text_add(out, "</rect>\n");
}

const char *erg_svg_number(char *out, size_t size, double value)
{
    static const struct {
        double least;
        const char *unit;
    } units[] = {{1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (fabs(value) >= units[i].least) {
            double unit = units[i].least >= 1e6 ? units[i].least : 1e3;
            snprintf(out, size, "%.3g%s", value / unit, units[i].unit);
            return out;
        }
    snprintf(out, size, fabs(value) >= 1000 ? "%.0f" : "%.3g", value);
    return out;
}

/* ---- axes ---- */

/* 1, 2 or 5 times a power of ten: about `count` of them make up a span. */
static double round_step(double span, double count)
{
    double raw = span / count, power = pow(10, floor(log10(raw)));
    double times = raw / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

void erg_svg_scale_fit(struct svg_scale *scale, double least, double most, bool from_zero)
{
    if (!(least <= most))
        least = most = 0;
    if (from_zero && least > 0)
        least = 0;
    if (most - least < 1e-9 * fabs(most) || most == least) {
        most += most == 0 ? 1 : 0.05 * fabs(most);
        least -= from_zero ? 0 : 0.05 * fabs(least);
    }
    scale->step = round_step(most - least, 4);
    scale->low = scale->step * floor(least / scale->step + 1e-9);
    scale->high = scale->step * ceil(most / scale->step - 1e-9);
    assert(scale->low < scale->high);
}

double erg_svg_at(const struct svg_scale *scale, double value)
{
    return scale->from +
           (value - scale->low) / (scale->high - scale->low) * (scale->to - scale->from);
}

void erg_svg_axis(struct erg_text *out, const struct svg_scale *scale, double x, double to_x,
                  bool right)
{
    const long ticks = lround((scale->high - scale->low) / scale->step);
    char number[32];
    for (long i = 0; i <= ticks; i++) {
        double value = scale->low + (double)i * scale->step, y = erg_svg_at(scale, value);
        if (fabs(value) < 1e-9 * scale->step)
            value = 0;
        if (!right)
            erg_svg_line(out, x, y, to_x, y, "grid");
        erg_svg_label(out, right ? x + 3 : x - 3, y + 3, right ? SVG_START : SVG_END,
                      right ? "tick right" : "tick", erg_svg_number(number, sizeof number, value));
    }
}

void erg_svg_lack(struct erg_text *out, double x, double y, double width, double height,
                  const struct erg_collected *mark, bool upright)
{
    struct erg_text title = {0};
    const char *message = mark->result->message;
    erg_figure_describe(&title, mark);
    erg_text_printf(&title, ": %s", message ? message : erg_figure_lack(mark));
    erg_svg_box(out, x, y, width, height, "band", NULL, title.data);
    if (upright)
        erg_svg_label_up(out, x + width / 2 + 3.5, y + height / 2, SVG_MIDDLE, "lack",
                         erg_figure_lack(mark));
    else
        erg_svg_label(out, x + width / 2, y + height / 2 + 3.5, SVG_MIDDLE, "lack",
                      erg_figure_lack(mark));
    erg_text_release(&title);
}

/* ---- colours ---- */

/* Each from light to dark with lightness falling evenly, so that they can be distinguished without
 * their hues. */
void erg_svg_map_colour(char out[8], enum svg_map map, double share)
{
    enum { STOPS = 5 };
    static const unsigned char stops[][STOPS][3] = {
        [SVG_HEAT] =
            {{255, 247, 188}, {254, 217, 118}, {253, 141, 60}, {227, 26, 28}, {110, 0, 30}},
        [SVG_GREEN] =
            {{237, 248, 233}, {186, 228, 179}, {116, 196, 118}, {35, 139, 69}, {0, 68, 27}},
        [SVG_BLUE] =
            {{239, 243, 255}, {189, 215, 231}, {107, 174, 214}, {33, 113, 181}, {8, 48, 107}},
        [SVG_VIOLET] =
            {{242, 240, 247}, {203, 201, 226}, {158, 154, 200}, {106, 81, 163}, {63, 0, 125}},
    };
    double place = fmin(1, fmax(0, share)) * (STOPS - 1);
    size_t first = (size_t)fmin(place, STOPS - 2);
    double part = place - (double)first;
    int colour[3];
    for (int i = 0; i < 3; i++)
        colour[i] =
            (int)lround((1 - part) * stops[map][first][i] + part * stops[map][first + 1][i]);
    snprintf(out, 8, "#%02x%02x%02x", colour[0] & 255, colour[1] & 255, colour[2] & 255);
}

/* ---- figures ---- */

struct figure_part *erg_figure_part(struct figure *figure, double width, double height)
{
    ERG_RESERVE(figure, parts, 1);
    struct figure_part *part = &figure->parts[figure->count++];
    *part = (struct figure_part){.width = width, .height = height};
    return part;
}

void erg_figure_release(struct figure *figure)
{
    for (size_t i = 0; i < figure->count; i++)
        erg_text_release(&figure->parts[i].body);
    free(figure->parts);
    erg_text_release(&figure->csv);
    erg_arena_release(&figure->arena);
}
