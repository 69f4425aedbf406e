# layers.awk: reads the C, C++ and CUDA sources that are its arguments (paths relative to the root) and prints one line for each
# violation of the rules in tests/layers.t; details follow a tab. Variables: order, only, stand_ins (see there), mode.
#
# This is not a compiler: it drops comments, strings and directives, counts braces, and parses declarations outside of all braces.
# It reads both branches of an #if. clang-format keeps the sources regular enough for that.

function folder_of(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "." }
function last_part(path) { sub(/.*\//, "", path); return path }
function base_of(path) { sub(/.*\//, "", path); sub(/\.[^.]*$/, "", path); return path }
function main_header(folder) { return folder "/" base_of(folder) ".h" }
function report(text) { if (!(text in reported)) { reported[text]; print text } }

# ---- reading ----

# Removes comments and the contents of literals from a line. comment_open lasts over lines.
function code_of(line,   out, at, opening) {
  out = ""
  while (line != "") {
    if (comment_open) {
      at = index(line, "*/")
      if (!at) return out
      line = substr(line, at + 2)
      comment_open = 0
      out = out " "
      continue
    }
    if (!match(line, /\/\*|\/\/|"|'/)) return out line
    opening = substr(line, RSTART, RLENGTH)
    if (opening == "'" && substr(line, RSTART - 1, 1) ~ /[0-9]/) { # a digit separator
      out = out substr(line, 1, RSTART)
      line = substr(line, RSTART + 1)
      continue
    }
    out = out substr(line, 1, RSTART - 1)
    line = substr(line, RSTART + RLENGTH)
    if (opening == "//") return out
    if (opening == "/*") { comment_open = 1; continue }
    at = 1
    while (at <= length(line) && substr(line, at, 1) != opening) at += substr(line, at, 1) == "\\" ? 2 : 1
    line = substr(line, at + 1)
  }
  return out
}

function read_include(line, path) {
  if (!match(line, /"[^"]+"/)) return
  path = substr(line, RSTART + 1, RLENGTH - 2)
  include[FILENAME, ++include_count[FILENAME]] = path
}

# A header may declare names made by ##: the text before it and the words of its lists, for the rule about lists.
function read_define(line,   rest) {
  rest = line
  while (match(rest, /[A-Za-z_][A-Za-z_0-9]*/)) {
    listed[FILENAME, substr(rest, RSTART, RLENGTH)]
    rest = substr(rest, RSTART + RLENGTH)
  }
  while (match(line, /[A-Za-z_][A-Za-z_0-9]*##[A-Za-z_0-9]+(##[A-Za-z_0-9]+)?/)) {
    split(substr(line, RSTART, RLENGTH), pasted, "##")
    pastes[FILENAME] = pastes[FILENAME] " " pasted[1] "##" pasted[3]
    line = substr(line, RSTART + RLENGTH)
  }
}

function reset_declaration() {
  words = groups = 0
  hidden = typed = is_extern = initialised = 0
  first_word = last = before_last = group_name = data_names = ""
}

# One declaration of a name; `defines` where it is a definition.
function declare(name, defines) {
  if (name == "" || name in keyword) return
  if (FILENAME ~ /\.(h|cuh)$/) { if (!hidden) declared[FILENAME, name]; return }
  if (hidden || name == "main") return
  if (!defines) { local_declaration[FILENAME, name]; return }
  if (FILENAME ~ stand_ins) return
  if (name in defined_in && defined_in[name] != FILENAME) report("function defined twice: " name ": " defined_in[name] " " FILENAME)
  defined_in[name] = FILENAME
  defined[++defined_count] = name
}

function end_declaration(by_body,   i, count, list) {
  if (groups && group_name != "" && !initialised && data_names == "") declare(group_name, by_body)
  else if (!by_body && !typed) {
    if (!initialised && last ~ /^[A-Za-z_]/ && words > (first_word ~ /^(struct|union|enum)$/ ? 2 : 1)) data_names = data_names " " last
    count = split(data_names, list, " ")
    for (i = 1; i <= count; i++) declare(list[i], !is_extern)
  }
  if (!by_body || groups) reset_declaration()
}

# A token outside of all braces.
function outside(token) {
  if (token == "(") {
    if (parens++ == 0) {
      group_name = last in attribute ? group_name : last ~ /^[A-Za-z_]/ ? last : ""
      groups += last in attribute ? 0 : 1
    }
  } else if (token == ")") parens--
  else if (parens) return
  else if (token == ";") { end_declaration(0); return }
  else if (token == "=") { if (!initialised && last ~ /^[A-Za-z_]/) data_names = data_names " " last; initialised = 1 }
  else if (token == "[") { if (!initialised && !groups && last ~ /^[A-Za-z_]/) data_names = data_names " " last }
  else if (token == ",") { if (!initialised && !groups && last ~ /^[A-Za-z_]/) data_names = data_names " " last; initialised = 0 }
  else {
    if (words++ == 0) first_word = token
    if (token ~ /^(static|inline|inline_always|TILE_FUNCTION|template|__global__|__device__|namespace)$/) hidden = 1
    if (token == "typedef") typed = 1
    if (token == "extern") is_extern = 1
  }
  last = token
}

function take(token) {
  if (token == "{") {
    if (last ~ /^[A-Za-z_]/ && before_last ~ /^(struct|union|enum)$/) {
      if (last in tag_in) report("tag defined twice: " before_last " " last ": " tag_in[last] " " FILENAME)
      else tag_in[last] = FILENAME
    }
    if (depth == 0 && last == "extern") { transparent++; reset_declaration(); return } # extern "C" {
    if (depth++ == 0 && parens == 0 && !initialised && groups) { end_declaration(1); in_body = 1 }
    before_last = last = ""
    return
  }
  if (token == "}") {
    if (depth == 0) { if (transparent-- == 0) report("unbalanced braces: " FILENAME); return }
    if (--depth == 0) { if (in_body || first_word == "namespace") reset_declaration(); in_body = 0; last = "}" }
    return
  }
  if ((depth || initialised) && token ~ /^[A-Za-z_]/ && last !~ /^(struct|union|enum|\.|->)$/) used[FILENAME, token]
  if (depth == 0) { before_last = last; outside(token) }
  else { before_last = last; last = token }
}

function take_line(line) {
  while (match(line, /[A-Za-z_][A-Za-z_0-9]*|->|[][(){};=,.]/)) {
    take(substr(line, RSTART, RLENGTH))
    line = substr(line, RSTART + RLENGTH)
  }
}

BEGIN {
  count = split("__attribute__ _Static_assert static_assert _Alignas alignas __declspec __launch_bounds__", list, " ")
  for (i = 1; i <= count; i++) attribute[list[i]]
  count = split("void int char float double const volatile unsigned signed return if for while switch sizeof defined", list, " ")
  for (i = 1; i <= count; i++) keyword[list[i]]
  reset_declaration()
}

FNR == 1 {
  if (depth) report("unbalanced braces: " previous)
  depth = parens = comment_open = directive = in_body = transparent = 0
  previous = FILENAME
  file[++file_count] = FILENAME
  is_file[FILENAME]
  reset_declaration()
}

FILENAME ~ /\.def$/ {
  line = code_of($0)
  while (match(line, /[A-Za-z_][A-Za-z_0-9]*/)) {
    listed[FILENAME, substr(line, RSTART, RLENGTH)]
    line = substr(line, RSTART + RLENGTH)
  }
  next
}

directive || /^[ \t]*#/ {
  if (!directive && /^[ \t]*#[ \t]*include/) read_include($0)
  else { line = code_of($0); read_define(line) }
  directive = /\\$/
  next
}

{ take_line(code_of($0)) }

# ---- judging ----

# The place of a folder in the order; folders that are not listed are above all others.
function place_of(folder) { return folder in place ? place[folder] : 1000 }

# May a file depend on another of another folder?
function may_see(from, to,   a, b, i, count, list) {
  a = folder_of(from)
  b = folder_of(to)
  if (a == b || b == "base") return 1
  if (a in allowed) {
    count = split(allowed[a], list, ",")
    for (i = 1; i <= count; i++) if (index(to, list[i]) == 1) return 1
    return 0
  }
  if (a ~ /^gen(\/|$)/ && b !~ /^gen(\/|$)/) return to ~ /^(runtime\/plan\/|kernels\/((cpu|cuda)\/)?ops\.(def|h)$|kernels\/steps\.def$)/
  if (a ~ /^runtime\/plan$/) return to ~ /^kernels\/ops\.(def|h)$/
  if (a ~ /^runtime(\/|$)/ && b !~ /^runtime(\/|$)/) return b ~ /^kernels$/
  if (a ~ /^kernels(\/|$)/ && b !~ /^kernels(\/|$)/) return 0
  return place_of(b) < place_of(a) || (a ~ /^(tools|tests)(\/|$)/ && b !~ /^tests\//) || (a ~ /^tests\// && b ~ /^tests\//)
}

function declared_for(path, name,   folder, i, count, list, header) {
  folder = folder_of(path)
  header = folder "/" base_of(path)
  count = split(header ".h " header ".cuh " folder "/internal.h " main_header(folder) " " main_header(folder_of(folder)), list, " ")
  for (i = 1; i <= count; i++) {
    header = list[i]
    if ((header, name) in declared || by_list(header, name)) return 1
  }
  return 0
}

# Is the name made of a prefix that the header pastes (##) and an entry of a list, in a .def file that it includes or its own?
function by_list(header, name,   i, j, count, list, part, affix) {
  count = split(pastes[header], list, " ")
  for (i = 1; i <= count; i++) {
    split(list[i], affix, "##")
    j = length(name) - length(affix[1]) - length(affix[2])
    if (j < 1 || index(name, affix[1]) != 1 || substr(name, length(affix[1]) + j + 1) != affix[2]) continue
    part = substr(name, length(affix[1]) + 1, j)
    if ((header, part) in listed) return 1
    for (j = 1; j <= include_count[header]; j++) if ((include[header, j], part) in listed) return 1
  }
  return 0
}

# A .c is a unit without its ending; a header is one by itself, since it may hold types that its .c does not.
function unit_of(path) { sub(/\.(c|cu|cc)$/, "", path); return path }
# Within a folder, one unit needs another: a call, or an include between headers.
function add_edge(from, to, why,   a, b) {
  a = unit_of(from)
  b = unit_of(to)
  if (a == b) return
  if (!((a, b) in edge) || why < edge[a, b]) edge[a, b] = why
  units[folder_of(a)] = units[folder_of(a)] " " a
}

# Reports the units of a folder that reach each other, and how.
function find_cycles(folder,   count, unit, i, j, k, members, how, reach, seen, direct) {
  k = split(units[folder], direct, " ")
  for (i = 1; i <= k; i++) if (!(direct[i] in seen)) { seen[direct[i]]; unit[++count] = direct[i] }
  for (key in edge) {
    split(key, pair, SUBSEP)
    if (folder_of(pair[1]) == folder && !(pair[2] in seen)) { seen[pair[2]]; unit[++count] = pair[2] }
  }
  for (i = 2; i <= count; i++)
    for (j = i; j > 1 && unit[j] < unit[j - 1]; j--) { k = unit[j]; unit[j] = unit[j - 1]; unit[j - 1] = k }
  for (i = 1; i <= count; i++) for (j = 1; j <= count; j++) reach[i, j] = (unit[i], unit[j]) in edge
  for (k = 1; k <= count; k++)
    for (i = 1; i <= count; i++)
      if (reach[i, k]) for (j = 1; j <= count; j++) if (reach[k, j]) reach[i, j] = 1
  for (i = 1; i <= count; i++) {
    if (!reach[i, i] || i in done_unit) continue
    members = how = ""
    for (j = i; j <= count; j++) {
      if (!reach[i, j] || !reach[j, i]) continue
      members = members " " last_part(unit[j])
      cycle_of[j] = i
    }
    for (j = 1; j <= count; j++)
      for (k = 1; k <= count; k++)
        if (cycle_of[j] == i && cycle_of[k] == i && (unit[j], unit[k]) in edge)
          how = how "\t" last_part(unit[j]) " -> " last_part(unit[k]) " (" edge[unit[j], unit[k]] ")"
    for (j = 1; j <= count; j++) if (cycle_of[j] == i) done_unit[j]
    report("cycle in " folder ":" members how)
  }
  split("", done_unit)
  split("", cycle_of)
}

END {
  if (mode == "exports") {
    for (i = 1; i <= defined_count; i++) print defined[i]
    for (path in pastes) {
      count = split(pastes[path], list, " ")
      for (i = 1; i <= count; i++) print list[i]
    }
    exit
  }
  if (depth) report("unbalanced braces: " previous)
  count = split(order, list, " ")
  for (i = 1; i <= count; i++) place[list[i]] = i
  count = split(only, list, " ")
  for (i = 1; i <= count; i++) { split(list[i], pair, "="); allowed[pair[1]] = pair[2] }
  for (i = 1; i <= file_count; i++) {
    folder = folder_of(file[i])
    if (folder !~ /^tests/ && !(folder in place)) report("folder without a place in the order: " folder)
  }
  for (i = 1; i <= file_count; i++) {
    from = file[i]
    for (j = 1; j <= include_count[from]; j++) {
      to = include[from, j]
      if (!(to in is_file)) continue
      if (!may_see(from, to)) report("include that points up: " from " " to)
      else if (folder_of(from) == folder_of(to) && from ~ /\.(h|cuh)$/ && to ~ /\.(h|cuh)$/ && base_of(to) != "internal") add_edge(from, to, "#include")
    }
  }
  for (i = 1; i <= defined_count; i++) {
    name = defined[i]
    path = defined_in[name]
    if (path !~ /^tests\// && !declared_for(path, name)) report("export without a declaration in its header: " name " " path)
  }
  for (key in declared) {
    split(key, pair, SUBSEP)
    if (!(pair[2] in defined_in)) continue
    path = folder_of(defined_in[pair[2]])
    if (folder_of(pair[1]) != path && pair[1] != main_header(folder_of(path))) report("declared outside of its folder: " pair[2] " " pair[1])
  }
  for (key in local_declaration) {
    split(key, pair, SUBSEP)
    if (pair[2] in defined_in && defined_in[pair[2]] != pair[1]) report("declared by hand in a .c: " pair[2] " " pair[1])
  }
  # Calls within a folder, but for those through internal.h.
  for (key in used) {
    split(key, pair, SUBSEP)
    if (!(pair[2] in defined_in)) continue
    from = pair[1]
    to = defined_in[pair[2]]
    if (from != to && folder_of(from) == folder_of(to) && !((folder_of(to) "/internal.h", pair[2]) in declared)) add_edge(from, to, pair[2])
  }
  for (folder in units) find_cycles(folder)
}
