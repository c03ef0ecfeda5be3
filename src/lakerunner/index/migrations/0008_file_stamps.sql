-- How a file of a folder was last seen: a hash of path, inode, modification time and size. A file with a known stamp is
-- not read again to find its content hash. Earlier releases made the object's id of these.
ALTER TABLE raw_object ADD COLUMN stamp_id uuid;
UPDATE raw_object SET stamp_id = object_id WHERE bucket LIKE 'file:%';
CREATE INDEX raw_object_stamp ON raw_object (stamp_id) WHERE stamp_id IS NOT NULL;
