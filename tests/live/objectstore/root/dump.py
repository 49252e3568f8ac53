"""Run by ROOT's Python: what ROOT reads in an RNTuple, as plain bytes.

    python dump.py FILE NTUPLE OUT

For each field, OUT holds its type and one file per level of nesting: numbers
of items as 64 bits, or at the end the values. Fields without a C++ type are
what RDataFrame makes of them, by the names of the fields in them.
"""

import json
import sys
from pathlib import Path

import ROOT

ROOT.gInterpreter.Declare(r"""
#include <ROOT/RDataFrame.hxx>
#include <ROOT/RNTupleReader.hxx>
#include <bitset>
#include <fstream>
#include <optional>
#include <set>
#include <vector>

using Levels = std::vector<std::vector<char>>;

std::vector<char> &at(Levels &levels, std::size_t level) {
   if (levels.size() <= level) levels.resize(level + 1);
   return levels[level];
}
template <typename T>
void plain(Levels &levels, std::size_t level, const T &value) {
   auto &bytes = at(levels, level);
   const char *begin = reinterpret_cast<const char *>(&value);
   bytes.insert(bytes.end(), begin, begin + sizeof(T));
}
template <typename T>
void put(Levels &, std::size_t, const T &);

// How many levels a type has, where that is more than one.
template <typename T, typename = void> struct Depth { static constexpr std::size_t value = 1; };
template <typename T> struct Depth<T, std::void_t<typename T::value_type>> {
   static constexpr std::size_t value = 1 + Depth<typename T::value_type>::value;
};
template <typename A, typename B> struct Depth<std::pair<A, B>> {
   static constexpr std::size_t value = Depth<A>::value + Depth<B>::value;
};
template <std::size_t N> struct Depth<std::bitset<N>> { static constexpr std::size_t value = 2; };

template <typename T>
struct Put {
   static void put(Levels &levels, std::size_t level, const T &value) {
      if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::byte>) {
         plain(levels, level, value);
      } else {
         plain<std::uint64_t>(levels, level, value.size());
         for (std::size_t i = 1; i < Depth<T>::value; ++i) at(levels, level + i);
         for (auto &&one : value)
            ::put(levels, level + 1, static_cast<typename T::value_type>(one));
      }
   }
};
template <typename T>
struct Put<std::optional<T>> {
   static void put(Levels &levels, std::size_t level, const std::optional<T> &value) {
      plain<std::uint64_t>(levels, level, value.has_value());
      for (std::size_t i = 1; i <= Depth<T>::value; ++i) at(levels, level + i);
      if (value) ::put(levels, level + 1, *value);
   }
};
template <typename A, typename B>
struct Put<std::pair<A, B>> {
   static void put(Levels &levels, std::size_t level, const std::pair<A, B> &value) {
      ::put(levels, level, value.first);
      ::put(levels, level + Depth<A>::value, value.second);
   }
};
template <std::size_t N>
struct Put<std::bitset<N>> {
   static void put(Levels &levels, std::size_t level, const std::bitset<N> &value) {
      plain<std::uint64_t>(levels, level, N);
      for (std::size_t i = 0; i < N; ++i) plain<bool>(levels, level + 1, value[i]);
   }
};
template <typename T>
void put(Levels &levels, std::size_t level, const T &value) { Put<T>::put(levels, level, value); }

void save(const Levels &levels, const std::string &out) {
   for (std::size_t i = 0; i < levels.size(); ++i) {
      std::ofstream target(out + "." + std::to_string(i), std::ios::binary);
      target.write(levels[i].data(), levels[i].size());
   }
}
template <typename T>
void view(ROOT::RNTupleReader &reader, const std::string &field, const std::string &out) {
   Levels levels;
   auto values = reader.GetView<T>(field);
   for (auto entry : reader.GetEntryRange()) put<T>(levels, 0, values(entry));
   save(levels, out);
}
template <typename T>
void frame(const std::string &file, const std::string &tuple, const std::string &column,
           const std::string &out) {
   ROOT::RDataFrame frame(tuple, file);
   Levels levels;
   frame.Foreach([&](const T &value) { put(levels, 0, value); }, {column});
   save(levels, out);
}
""") or sys.exit("ROOT does not compile the helper")  # fmt: skip

file, ntuple, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
reader = ROOT.RNTupleReader.Open(ntuple, file)
fields = {
    str(field.GetFieldName()): str(field.GetTypeName())
    for field in reader.GetDescriptor().GetTopLevelFields()
}
columns = {name: kind for name, kind in fields.items() if kind}
lines = []
if len(columns) < len(fields):
    frame = ROOT.RDataFrame(ntuple, file)
    for name in map(str, frame.GetColumnNames()):
        if name not in columns and not name.startswith("R_rdf_sizeof"):
            columns[name] = str(frame.GetColumnType(name))
for number, (name, kind) in enumerate(columns.items()):
    target = f'"{out}/{number}"'
    if fields.get(name):
        lines.append(f'view<{kind}>(*reader, "{name}", {target});')
    else:
        lines.append(f'frame<{kind}>("{file}", "{ntuple}", "{name}", {target});')
# All at once: the compiler is started once.
opened = f'auto reader = ROOT::RNTupleReader::Open("{ntuple}", "{file}");'
code = "\n".join(["void dump_all() {", opened, *lines, "}"])
ROOT.gInterpreter.Declare(code) or sys.exit("ROOT does not compile the reading of these types")
ROOT.dump_all()
entries = int(reader.GetNEntries())
found = {name: [number, kind] for number, (name, kind) in enumerate(columns.items())}
(out / "columns.json").write_text(json.dumps({"entries": entries, "columns": found}))
