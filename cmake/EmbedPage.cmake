# A page of the report as a C array:
#   cmake -DPAGE_DIR=... -DPAGE=report -DSCRIPTS=report,charts -DSYMBOL=erg_report_page -DOUTPUT=...
#         -P EmbedPage.cmake
# Puts report.css and the scripts where PAGE.html says so, and writes the bytes with a final NUL.
file(READ ${PAGE_DIR}/${PAGE}.html page)
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
