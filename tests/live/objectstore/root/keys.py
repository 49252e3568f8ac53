"""Run by ROOT's Python: where ROOT would look for the pages of an ntuple in DAOS.

    python keys.py DIRECTORY NAME OUT

The directory has the values of an ntuple under ROOT's keys, one in each file,
named by the lower half of the object's identity, distribution and attribute
key. OUT is JSON: the ntuple's index and name, its fields, and for each page the
keys, the elements, and the bytes with its checksum. ROOT's own classes read
the envelopes and locators; only the anchor's fields are read here.
"""

import json
import struct
import sys
from pathlib import Path

import ROOT

ROOT.gInterpreter.Declare(r"""
#include <ROOT/RNTupleDescriptor.hxx>
#include <ROOT/RNTupleSerialize.hxx>
#include <ROOT/RNTupleZip.hxx>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

using Serializer = ROOT::Internal::RNTupleSerializer;

std::string stored(const std::string &path) {
   std::ifstream file(path, std::ios::binary);
   if (!file) throw std::runtime_error("nothing in " + path);
   return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<unsigned char> plain(const std::string &data, std::size_t length) {
   std::vector<unsigned char> out(length);
   ROOT::Internal::RNTupleDecompressor::Unzip(data.data(), data.size(), length, out.data());
   return out;
}

std::uint64_t hashOf(const std::string &name) { return std::hash<std::string>{}(name); }

struct Ntuple {
   std::string name;
   std::vector<std::string> fields;
   std::vector<std::vector<unsigned long long>> pages;
};

Ntuple look(const std::string &header, std::size_t headerLength, const std::string &footer,
            std::size_t footerLength, const std::string &lists,
            const std::vector<std::uint16_t> &version) {
   ROOT::Internal::RNTupleDescriptorBuilder builder;
   builder.SetVersion(version.at(0), version.at(1), version.at(2), version.at(3));
   auto first = plain(stored(header), headerLength);
   Serializer::DeserializeHeader(first.data(), first.size(), builder).ThrowOnError();
   auto last = plain(stored(footer), footerLength);
   Serializer::DeserializeFooter(last.data(), last.size(), builder).ThrowOnError();
   auto descriptor = builder.MoveDescriptor();
   for (const auto &group : descriptor.GetClusterGroupIterable()) {
      auto locator = group.GetPageListLocator();
      if (locator.GetType() != ROOT::RNTupleLocator::kTypeDAOS) throw std::runtime_error("type");
      auto key = locator.GetPosition<ROOT::RNTupleLocatorObject64>().GetLocation();
      auto packed = stored(lists + std::to_string(key));
      if (packed.size() != locator.GetNBytesOnStorage()) throw std::runtime_error("size");
      auto list = plain(packed, group.GetPageListLength());
      Serializer::DeserializePageList(list.data(), list.size(), group.GetId(), descriptor,
                                      Serializer::EDescriptorDeserializeMode::kForReading);
   }
   Ntuple found;
   found.name = descriptor.GetName();
   for (const auto &field : descriptor.GetTopLevelFields())
      found.fields.push_back(field.GetFieldName());
   for (const auto &cluster : descriptor.GetClusterIterable()) {
      for (const auto &column : cluster.GetColumnRangeIterable()) {
         auto number = column.GetPhysicalColumnId();
         for (const auto &page : cluster.GetPageRange(number).GetPageInfos()) {
            const auto &locator = page.GetLocator();
            if (locator.GetType() != ROOT::RNTupleLocator::kTypeDAOS)
               throw std::runtime_error("type of a page");
            auto key = locator.GetPosition<ROOT::RNTupleLocatorObject64>().GetLocation();
            found.pages.push_back({cluster.GetId(), number, key, page.GetNElements(),
                                   locator.GetNBytesOnStorage() + 8 * page.HasChecksum()});
         }
      }
   }
   return found;
}
""")

directory, name, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
LISTS, METADATA, DKEY = 2**64 - 2, 2**64 - 1, 0x5A3C69F0CAFE4A11
anchor, header, footer = (
    directory / f"{METADATA}_{DKEY}_{0x4243544B5344422A + one}" for one in range(3)
)
fields = struct.unpack_from("<Q4H4I", anchor.read_bytes())
n_header, len_header, n_footer, len_footer = fields[5:]
assert (n_header, n_footer) == (header.stat().st_size, footer.stat().st_size)
lists = directory / f"{LISTS}_{DKEY}_"
version = ROOT.std.vector["std::uint16_t"](fields[1:5])
found = ROOT.look(str(header), len_header, str(footer), len_footer, str(lists), version)
hashed = int(ROOT.hashOf(name))
high, low, mask = hashed >> 32, hashed & 0xFFFFFFFF, 0xFFFFFFFF
index = (high ^ (low + 0x9E3779B9 + (high << 6 & mask) + (high >> 2)) & mask) or 1
seen = {
    "index": index,
    "name": str(found.name),
    "fields": [str(one) for one in found.fields],
    "pages": [[int(one) for one in page] for page in found.pages],
}
out.write_text(json.dumps(seen))
