PRAGMA application_id=1751478371;
PRAGMA user_version=2;
BEGIN TRANSACTION;
CREATE TABLE blobs (kind TEXT, key TEXT, data BLOB NOT NULL, digest TEXT NOT NULL,
       PRIMARY KEY (kind, key));
INSERT INTO "blobs" VALUES('kind','key',X'0064617461FF','11365ecadcedaf7d');
CREATE TABLE files (location TEXT, tree TEXT, facts TEXT NOT NULL, digest TEXT NOT NULL,
       PRIMARY KEY (location, tree)) WITHOUT ROWID;
INSERT INTO "files" VALUES('/data/é file.root','Events','{"settled":true,"path":"/data/\u00e9 file.root","tree":"Events","uuid":"6ac7019c-2941-11f1-b022-001a4abb4031","entries":250,"clusters":[0,100,200,250],"size":1234,"validator":"1234-1600000000000000000","tag":"0123456789abcdef","fingerprint":"fedcba9876543210","replaces":""}','af07f595ff7645ae');
COMMIT;
