# A page of the report as a C array:
#   cmake -DPAGE_DIR=... -DPAGE=report -DSCRIPTS=report,charts -DSYMBOL=erg_report_page -DOUTPUT=...
#         -P EmbedPage.cmake
# Puts the sections of PAGE.html, report.css and the scripts where frame.html says so, and writes the
# bytes with a final NUL. The first line of PAGE.html is <!-- title: headline -->.
file(READ ${PAGE_DIR}/frame.html page)
file(READ ${PAGE_DIR}/${PAGE}.html sections)
if(NOT sections MATCHES "^<!-- ([^:\n]+): ([^\n]+) -->\n")
  message(FATAL_ERROR "${PAGE}.html: the first line is not <!-- title: headline -->")
endif()
string(REPLACE "@TITLE@" "${CMAKE_MATCH_1}" page "${page}")
string(REPLACE "@HEADLINE@" "${CMAKE_MATCH_2}" page "${page}")
string(REPLACE "${CMAKE_MATCH_0}" "" sections "${sections}")
string(REPLACE "@SECTIONS@" "${sections}" page "${page}")
file(READ ${PAGE_DIR}/report.css style)
set(script "")
string(REPLACE "," ";" parts ${SCRIPTS})
foreach(part IN LISTS parts)
  file(READ ${PAGE_DIR}/${part}.js text)
  string(APPEND script "${text}")
endforeach()
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
file(WRITE ${OUTPUT}.html "${page}")
file(READ ${OUTPUT}.html bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"report/report_internal.h\"\n\nconst char ${SYMBOL}[] = {\n${bytes}0};\n")
file(REMOVE ${OUTPUT}.html)
